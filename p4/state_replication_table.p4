// A variant of state_replication.p4 that stores the ports in a table, which a controller on the switch writes.

#define EMBEDDED_CONTROLLER
#define PROGRAM "state_replication_table"
#include "state_replication.p4"
