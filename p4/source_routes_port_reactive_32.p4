// source_routes.p4 for the encoding port_reactive with labels of 32 bits.

#define WIDE
#define ENCODING 6
#define PROGRAM "source_routes_port_reactive_32"
#include "source_routes.p4"
