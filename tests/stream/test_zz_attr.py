from __future__ import annotations
import dataclasses, datetime as dt, json, random, shutil, time
from pathlib import Path
import pytest
from test_attribute_stream import Deployment, NETWORK, PUBLISHER, settings_of, lab  # noqa
import test_attribute_stream as base
from jobs.adapters.switches.lead import Refresher
from jobs.adapters.tables.tables import Tables
from udfs.messages.attributes.registry import Registry, attribute
from udfs.network.rows import network_to_rows, tree_to_row
from udfs.trees.broadcast import broadcast_trees
pytestmark = pytest.mark.integration
N=28
REG = Registry(tuple(attribute(i, f"a{i}", ["unsigned","decimal","signed"][i%3]) for i in range(N)))
R=random.Random(7)
def rule():
    k=R.choice([1,2,2,2,3,3,4]); names=R.sample(range(N),k); parts=[]
    for j,i in enumerate(names):
        if j==0: parts.append(f"a{i} == {R.randrange(200)}")
        else: parts.append(R.choice([f"a{i} > {R.randrange(200)}", f"a{i} < {R.randrange(200)}", f"a{i} between {R.randrange(50)} and {R.randrange(50,200)}", f"not a{i} == {R.randrange(200)}", f"a{i} in {{{R.randrange(200)}, {R.randrange(200)}}}"]))
    return " and ".join(parts) if R.random()<.9 else " or ".join(parts)
RULES={f"r{n}":(f"h{1+n%6}","attributes",rule()) for n in range(5000)}
def test_many(spark, empty_tables, lab, tmp_path):
    folder=tmp_path/"filled"/"tables"; folder.parent.mkdir(); shutil.copytree(empty_tables, folder)
    tables=Tables(spark,str(folder)); now=dt.datetime.now(dt.UTC); who={"updated_by":"t","updated_at":now}
    contents={**network_to_rows(NETWORK, dict.fromkeys(NETWORK.switches, lab.p4runtime)),
      "virtual_trees":[tree_to_row(t) for t in broadcast_trees(NETWORK)],
      "attributes":[dataclasses.asdict(o)|{"registered_by":"t","registered_at":now} for o in REG.attributes],
      "subscriptions":[{"id":n,"subscriber":h,"format":f,"filter":t,"enabled":True,**who} for n,(h,f,t) in RULES.items()]}
    for name,rows in contents.items(): tables.append(name,list(rows))
    with Refresher(tables, settings_of(lab, tables.location)) as r: assert r.once()=={}
    one=Deployment(spark, lab, folder, tmp_path)
    ev=[]
    for _ in range(4000):
        names=R.sample(range(N),R.randint(4,14))
        ev.append(json.dumps({f"a{i}":R.randrange(200) for i in names}).encode())
    one.publish(ev)
    t=time.time(); one.run(); print("RUN s", round(time.time()-t,1), flush=True)
    t=time.time(); o=one.outcome(); print("OUTCOME", o.exact, o.counts(), round(time.time()-t,1), flush=True)
    print("LIVE", len(one.tables.rows("live_subscriptions")), "REJ", one.rejected(), flush=True)
    print("LEDGER", [(r["packets"],r["matched"],round(r["seconds"],2)) for r in one.ledger], flush=True)
    assert o.exact
