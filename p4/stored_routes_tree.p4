// stored_routes.p4 for the encoding tree.

#define ENCODING 2
#define PROGRAM "stored_routes_tree"
#include "stored_routes.p4"
