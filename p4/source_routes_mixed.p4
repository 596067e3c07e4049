// source_routes.p4 for encoding mixed.

#define ENCODING 4
#define PROGRAM "source_routes_mixed"
#include "source_routes.p4"
