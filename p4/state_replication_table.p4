// state_replication.p4 with the ports of a state in a table, which a controller on the switch writes.

#define EMBEDDED_CONTROLLER
#define PROGRAM "state_replication_table"
#include "state_replication.p4"
