// source_routes.p4 for the encoding hops with labels of 32 bits.

#define WIDE
#define ENCODING 5
#define PROGRAM "source_routes_hops_32"
#include "source_routes.p4"
