// source_routes.p4 for labels of 32 bits of encoding port.

#define WIDE
#define PROGRAM "source_routes_32"
#include "source_routes.p4"
