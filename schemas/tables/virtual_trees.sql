CREATE TABLE IF NOT EXISTS ${table} (
  tree_id INT NOT NULL COMMENT 'Unique number, never 0; 14 bits, or 30 bits if labels have 32 bits',
  edges ARRAY<STRUCT<u: STRING, v: STRING>> NOT NULL COMMENT 'Undirected edges between switches and hosts',
  strategy STRING NOT NULL COMMENT 'Strategy that chose the tree',
  state STRING NOT NULL COMMENT 'installing, active, retiring or retired. Stacks use only active trees; switches store all trees except retired ones'
)
USING delta
COMMENT 'One row per stored tree. An id is never reused for another tree.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}',
  'delta.enableChangeDataFeed' = 'true',
  'delta.constraints.state_known' = 'state IN (\'installing\', \'active\', \'retiring\', \'retired\')',
  'delta.constraints.tree_id_fits_label' = 'tree_id BETWEEN 1 AND 1073741823'
)
