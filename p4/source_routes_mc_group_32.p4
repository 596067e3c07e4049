// source_routes.p4 for the encoding mc_group with labels of 32 bits.

#define WIDE
#define ENCODING 3
#define PROGRAM "source_routes_mc_group_32"
#include "source_routes.p4"
