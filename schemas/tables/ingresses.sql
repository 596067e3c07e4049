CREATE TABLE IF NOT EXISTS ${table} (
  place STRING COMMENT 'Place of executors: their environment variable STACKCAST_PLACE or, if that is not set, their host name. Null for all places without rows of their own',
  publisher STRING COMMENT 'Host with role publisher through whose link frames enter the network. Null for the link of each publisher of the stream. If all rows of a place name the same host, all frames from the place enter through its link',
  transport STRING COMMENT 'UDP endpoint (host:port) or network interface that leads to this link. {publisher} and {switch} are replaced by the host and its switch. Null for the setting of the sink'
)
USING delta
COMMENT 'One row per place and publisher: the transport with which executors hand frames to the network. If the table is empty, the settings of the sink apply. See docs/reference/ingresses.md.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}',
  'delta.enableChangeDataFeed' = 'true',
  'delta.constraints.place_not_empty' = 'place IS NULL OR length(place) > 0',
  'delta.constraints.publisher_not_empty' = 'publisher IS NULL OR length(publisher) > 0',
  'delta.constraints.transport_not_empty' = 'transport IS NULL OR length(transport) > 0'
)
