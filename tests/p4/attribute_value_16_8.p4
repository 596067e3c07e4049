// Attribute/value events with ids of 16 bits and bitmasks of 8: other widths than those shipped.

#define ID_BITS 16
#define ATTRIBUTES 8
#include "../../p4/attribute_value.p4"
