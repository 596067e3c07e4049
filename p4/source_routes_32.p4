// source_routes.p4 for the encoding port with labels of 32 bits.

#define WIDE
#define PROGRAM "source_routes_32"
#include "source_routes.p4"
