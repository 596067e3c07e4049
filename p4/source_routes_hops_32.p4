// source_routes.p4 for labels of 32 bits of encoding hops.

#define WIDE
#define ENCODING 5
#define PROGRAM "source_routes_hops_32"
#include "source_routes.p4"
