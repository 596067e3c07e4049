// stored_routes.p4 for encoding destinations.

#define ENCODING 1
#define PROGRAM "stored_routes_destinations"
#include "stored_routes.p4"
