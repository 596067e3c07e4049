// source_routes.p4 for the encoding port_reactive.

#define ENCODING 6
#define PROGRAM "source_routes_port_reactive"
#include "source_routes.p4"
