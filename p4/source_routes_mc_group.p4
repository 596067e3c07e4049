// source_routes.p4 for the encoding mc_group.

#define ENCODING 3
#define PROGRAM "source_routes_mc_group"
#include "source_routes.p4"
