// source_routes.p4 for the encoding bitmask.

#define ENCODING 2
#define PROGRAM "source_routes_bitmask"
#include "source_routes.p4"
