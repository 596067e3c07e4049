// virtual_trees.p4 with labels of 32 bits, for networks with more than 16,383 directed links or trees.

#define LABEL_BITS 32
#define PROGRAM "virtual_trees_32"
#include "virtual_trees.p4"
