// source_routes.p4 for the encoding mixed.

#define ENCODING 4
#define PROGRAM "source_routes_mixed"
#include "source_routes.p4"
