// state_replication.p4 with the ports of states in a table, which is written by a controller on the switch.

#define EMBEDDED_CONTROLLER
#define PROGRAM "state_replication_table"
#include "state_replication.p4"
