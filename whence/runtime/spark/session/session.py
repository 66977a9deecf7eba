"""Spark sessions with settings that were measured to suit Whence.

    spark = whence.runtime.spark.session()
    db = whence.open(path, spark=spark)

What the user has set, here, in spark-defaults.conf or for spark-submit, is never touched. A session that was made
elsewhere works too; `advise` says what could be better about it.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from whence.model.errors import SparkError
from whence.runtime.spark.session.java import java_home

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)
DAEMON = "whence.runtime.spark.daemon"
_ATTEMPTS = 4  # of a task, as on a cluster; `local[2]` has one
ALONE = {  # libraries that start no threads when they are loaded: see daemon
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
_LOG4J = Path(__file__).with_name("log4j2.properties")

GOOD = {
    "spark.python.unix.domain.socket.enabled": "true",  # small jobs take half the time
    "spark.python.worker.reuse": "true",  # workers hold the partitions' state
    "spark.python.daemon.module": DAEMON,  # workers start warm
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.ui.enabled": "false",
    **{f"spark.executorEnv.{name}": value for name, value in ALONE.items()},
}
LAUNCH = {  # what Java must be told when it starts
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}",
    "spark.executor.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}",
}


def session(master: str | None = None, *, app: str = "whence", conf: Mapping[str, str] | None = None) -> SparkSession:
    """Start a Spark session with settings that suit Whence, or return the one that is running.

    master  as Spark has it. Without one, it is what spark-submit or spark-defaults.conf say, or else this machine with
            all of its cores. `local[2]` becomes `local[2,4]`, so that a task that failed is tried again
    app     the name of the application
    conf    more settings of Spark, which go before all others

    >>> spark = whence.spark_session("local[2]")  # doctest: +SKIP
    >>> db = whence.open("graph.db", spark=spark); db.close()  # doctest: +SKIP
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise SparkError("PySpark is not installed: `pip install 'whence[spark]'`") from error
    from whence.runtime.spark.session.errors import jvm_errors

    running = SparkSession.getActiveSession() or SparkSession._instantiatedSession
    if running is not None and running._jsc.sc().isStopped():
        running = None
    if running is not None:
        for advice in advise(running):
            _log.info("%s", advice)
        return running
    given = {name: str(value) for name, value in (conf or {}).items()}
    master = master or given.get("spark.master")
    if (master or "").startswith("sc:") or "SPARK_REMOTE" in os.environ:
        raise SparkError("Whence runs on Spark's own driver, not through Spark Connect: give a master such as local[*]")
    if master:
        given["spark.master"] = with_attempts(master)
    with jvm_errors("starting Spark"):
        return _start(app, given)


def _start(app: str, given: dict[str, str]) -> SparkSession:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    with _environment(given.get("spark.master")):
        if SparkContext._gateway is None:
            launch = SparkConf(loadDefaults=False)
            here = _is_local(given.get("spark.master", "local"))
            for name, value in ((LAUNCH if here and not _has_defaults() else {}) | given).items():
                launch.set(name, value)
            SparkContext._ensure_initialized(conf=launch)
        settings = SparkConf(_jvm=SparkContext._jvm)  # with what spark-submit and spark-defaults.conf say
        for name, value in given.items():
            settings.set(name, value)
        if not settings.contains("spark.master"):
            settings.setMaster(with_attempts("local[*]"))
        if settings.get("spark.app.name", "pyspark-shell") == "pyspark-shell":
            settings.setAppName(app)
        master = str(settings.get("spark.master"))
        for name, value in (GOOD | _sized(master)).items():
            settings.setIfMissing(name, value)
        return SparkSession.builder.config(conf=settings).getOrCreate()


def with_attempts(master: str) -> str:
    """
    >>> with_attempts("local"), with_attempts("local[2]"), with_attempts("local[*,1]"), with_attempts("yarn")
    ('local[1,4]', 'local[2,4]', 'local[*,1]', 'yarn')
    """
    match = re.fullmatch(r"local(?:\[([0-9]+|\*)\])?", master)
    return f"local[{match[1] or 1},{_ATTEMPTS}]" if match else master


def _master(spark: SparkSession) -> str:
    return str(spark.sparkContext.master)


def _is_local(master: str) -> bool:
    return master.startswith("local")


def _has_defaults() -> bool:
    """Tell whether options of Java may be set elsewhere, which ours would replace."""
    home = os.environ.get("SPARK_HOME")
    folders = (os.environ.get("SPARK_CONF_DIR"), os.path.join(home, "conf") if home else None)
    return "PYSPARK_SUBMIT_ARGS" in os.environ or any(
        folder and Path(folder, "spark-defaults.conf").exists() for folder in folders
    )


def _sized(master: str) -> dict[str, str]:
    """Return settings for a Spark within one machine: a shuffle into 200 partitions takes longer than most of our
    work."""
    if not _is_local(master):
        return {}
    match = re.match(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)", master)
    cores = re.match(r"local\[\s*(\d+)", master)
    slots = int(match[1]) * int(match[2]) if match else int(cores[1]) if cores else os.cpu_count() or 1
    return {"spark.sql.shuffle.partitions": str(max(2, slots)), "spark.default.parallelism": str(max(2, slots))}


@contextmanager
def _environment(master: str | None) -> Iterator[None]:
    """Return what Spark's launcher reads from the environment: Java, and this Python for workers on this machine."""
    wanted: dict[str, str] = {}
    if "PYSPARK_GATEWAY_PORT" not in os.environ and (home := java_home()) is not None:
        wanted["JAVA_HOME"] = str(home)
    if "PYSPARK_PYTHON" not in os.environ and _is_local(master or "local"):
        wanted["PYSPARK_PYTHON"] = sys.executable  # and not the first python3 on the PATH
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def driver_host(spark: SparkSession) -> str:
    """Return the address at which the workers of a session find its driver."""
    if _is_local(_master(spark)):
        return "127.0.0.1"
    return str(spark.sparkContext.getConf().get("spark.driver.host", "127.0.0.1"))


def slots_of(context: SparkContext) -> int:
    """Return how many tasks can run at once on the executors that are there, as Spark counts for a barrier stage. What
    `defaultParallelism` says may be more, and then such a stage would never begin."""
    spark = context._jsc.sc()
    return int(spark.maxNumConcurrentTasks(spark.resourceProfileManager().defaultResourceProfile()))


def attempts_of(context: SparkContext) -> int:
    """Return how often Spark begins a task until it gives up."""
    master = str(context.master)
    if _is_local(master) and not master.startswith("local-cluster"):
        match = re.fullmatch(r"local\[[^,\]]*,\s*(\d+)\]", master)
        return int(match[1]) if match else 1
    return int(context.getConf().get("spark.task.maxFailures", "4"))


def grows_by_itself(context: SparkContext) -> bool:
    """Tell whether executors come and go by the work there is (dynamic allocation): Spark then starts no stage whose
    tasks need each other."""
    return str(context.getConf().get("spark.dynamicAllocation.enabled", "false")).lower() == "true"


def advise(spark: SparkSession) -> list[str]:
    """List what could be better about a session that was made elsewhere, each with what to set."""
    settings = spark.sparkContext.getConf()
    master = _master(spark)

    def has(name: str, value: str, default: str) -> bool:
        return str(settings.get(name, default)).lower() == value

    advice = []
    if not has("spark.python.unix.domain.socket.enabled", "true", "false"):
        advice.append("small jobs take up to twice as long without spark.python.unix.domain.socket.enabled=true")
    if not has("spark.python.worker.reuse", "true", "true"):
        advice.append("every job loads its state again with spark.python.worker.reuse=false")
    if not has("spark.python.daemon.module", DAEMON, ""):
        advice.append(f"Python workers start in seconds, warm ones at once with spark.python.daemon.module={DAEMON}")
    if with_attempts(master) != master:
        advice.append(f"a task that fails is not tried again in {master}; {with_attempts(master)} does")
    if _is_local(master) and int(spark.conf.get("spark.sql.shuffle.partitions", "200") or 200) > 64:
        advice.append("a shuffle makes many small tasks; set spark.sql.shuffle.partitions to the number of cores")
    if has("spark.speculation", "true", "false"):
        advice.append("spark.speculation=true makes tasks run twice, and each loads the state of its partitions")
    return advice
