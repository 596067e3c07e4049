// source_routes.p4 for labels of 32 bits of encoding port_reactive.

#define WIDE
#define ENCODING 6
#define PROGRAM "source_routes_port_reactive_32"
#include "source_routes.p4"
