// stored_routes.p4 for the encoding destinations.

#define ENCODING 1
#define PROGRAM "stored_routes_destinations"
#include "stored_routes.p4"
