// source_routes.p4 for the encoding hops.

#define ENCODING 5
#define PROGRAM "source_routes_hops"
#include "source_routes.p4"
