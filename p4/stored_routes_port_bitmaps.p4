// stored_routes.p4 for the encoding port_bitmaps.

#define ENCODING 4
#define PROGRAM "stored_routes_port_bitmaps"
#include "stored_routes.p4"
