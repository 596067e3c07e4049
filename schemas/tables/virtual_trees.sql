CREATE TABLE IF NOT EXISTS ${table} (
  tree_id INT NOT NULL COMMENT 'Unique, never 0; 14 bits, or 30 where labels have 32',
  edges ARRAY<STRUCT<u: STRING, v: STRING>> NOT NULL COMMENT 'Undirected edges between switches and hosts',
  strategy STRING NOT NULL COMMENT 'What chose the tree',
  state STRING NOT NULL COMMENT 'installing, active, retiring or retired; stacks name active trees only, switches hold all but retired ones'
)
USING delta
COMMENT 'One row is one stored tree. An id is never used again for another tree.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}',
  'delta.enableChangeDataFeed' = 'true',
  'delta.constraints.state_known' = 'state IN (\'installing\', \'active\', \'retiring\', \'retired\')',
  'delta.constraints.tree_id_fits_label' = 'tree_id BETWEEN 1 AND 1073741823'
)
