// source_routes.p4 for labels of 32 bits of encoding mc_group.

#define WIDE
#define ENCODING 3
#define PROGRAM "source_routes_mc_group_32"
#include "source_routes.p4"
