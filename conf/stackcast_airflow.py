"""Periodic jobs for Airflow 2.4 or newer. Copy this file to the DAG folder of Airflow.

The workers need the project in /opt/stackcast and its settings in /etc/stackcast/stackcast.conf.
"""

from datetime import datetime, timedelta

from airflow import DAG
from airflow.operators.bash import BashOperator

SUBMIT = "/opt/stackcast/spark-submit.sh --properties-file /etc/stackcast/stackcast.conf jobs/"
DAGS = {
    "stackcast_retune": (
        "17 * * * *",
        "retune_trees.py --window 1d --max-changed-rules 500 --wait 120",
    ),
    "stackcast_check_switches": ("40 3 * * *", "refresh_switches.py --dry-run"),
}

for name, (schedule, job) in DAGS.items():
    with DAG(
        name,
        schedule=schedule,
        start_date=datetime(2024, 1, 1),
        catchup=False,
        # A second run would take over the role of the first one.
        max_active_runs=1,
        default_args={"retries": 1, "retry_delay": timedelta(minutes=5)},
    ) as dag:
        BashOperator(
            task_id="run",
            bash_command=f"{SUBMIT}{job}",
            env={"STACKCAST_VAR": "/var/lib/stackcast/var"},
            append_env=True,
        )
    globals()[name] = dag
