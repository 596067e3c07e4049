#!/usr/bin/env bash
# The one door: makes the environment on first use, then runs a job, the tests or a benchmark in it.
#
#   ./spark-submit.sh [spark-submit options] jobs/JOB.py [arguments]
#
#     jobs/itch_stream.py       the main job: delivers ITCH; without a broker of yours on a lab of its own
#     jobs/attribute_stream.py  delivers attribute/value events; without a broker on a lab of sensors
#     jobs/create_tables.py     makes missing Delta tables, and fills empty ones from files
#     jobs/load_topology.py     puts a network into the tables: made by its sizes, or a known one
#     jobs/mobility_tracking.py shows replicated state at work: devices in a city, proved
#     jobs/refresh_switches.py  keeps the switches' entries in step with the tables
#     jobs/replica_controller.py  keeps replicated states, and the tables that say who holds what
#     jobs/state_stream.py      publishes rows of a table, or records of a topic, as replicated states
#     jobs/retune_trees.py      chooses the virtual trees anew, by what was published
#     jobs/rerequest.py         answers hosts that lost notifications
#     jobs/check_delivery.py    proves from what hosts wrote down that nothing was lost
#     jobs/deliver_from.py      delivers what a subscription matches in the past
#     jobs/backup.py            copies tables, checkpoint and positions of one moment, and puts them back
#     jobs/console.py           shows a deployment in the browser, and writes its subscriptions
#     jobs/run_sql.py           runs SQL on the tables; without statements it asks for them
#
#   ./spark-submit.sh test [pytest options]      all tests and linters; -m unit: those without Spark; FILE: one file
#   ./spark-submit.sh bench NAME [arguments]     one of these:
#
#     attributes   headers, entries and frames of attribute/value events
#     camus        filters in a switch and at a host, by sockets and by a queue; compile time
#     compile      the cost of compiling subscriptions
#     console      how fluid the map of the console is
#     encodings    all encodings beside BIER, Elmo, unicast, brokers and OpenFlow multicast
#     kernels      the cost of putting messages into frames
#     match        the cost of decoding events and finding their receivers
#     p4           passes, entries and frames of the P4 programs
#     pipeline     the whole path, from Kafka to the wire
#     states       memory, messages, latency and recovery of replicated state
#     trees        virtual trees and header stacks
#
#   ./spark-submit.sh make p4 --p4c PATH [--bmv2 PATH]    what p4c makes of the programs in p4/
#   ./spark-submit.sh make docs                  the table of settings in docs/operations.md
#   ./spark-submit.sh make packages --uv PATH    hashes of the Python packages in conf/packages
#   ./spark-submit.sh make structure             modules, lines, modules with one caller, circles
#   eval "$(./spark-submit.sh env)"              this shell gets spark-submit and stackcast (stackcast --help)
#
# Everything it makes lies under var/, or $STACKCAST_VAR; remove that folder to start afresh. PYTHON and
# JAVA_HOME name another Python 3.11 to 3.13 and another Java 17 or newer. Where to read on: README.md has a
# table of tasks and documents, docs/tutorial.md ten minutes to try, docs/operations.md settings and error codes.
set -euo pipefail
# With it, cd could go to another folder of the same name.
unset CDPATH

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
VAR=${STACKCAST_VAR:-$ROOT/var}
# Set by make_var, once the folder is there.
ENV_DIR=
JARS=
# Set by check_java.
JAVA_VERSION=

say() { printf 'stackcast: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

usage() { sed -n '2,/^set /s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }

# As Spark's own scripts choose it.
java_program() {
  if [ -n "${JAVA_HOME:-}" ]; then echo "$JAVA_HOME/bin/java"; else command -v java || true; fi
}

check_system() {
  [ "$(uname -s)" = Linux ] || die "Linux is needed, this is $(uname -s)."
}

check_java() {
  local java version
  java=$(java_program)
  [ -n "$java" ] || die "Java was not found: install a Java 17 runtime, or set JAVA_HOME to one."
  [ -x "$java" ] || die "JAVA_HOME=$JAVA_HOME has no bin/java: point it at a Java 17 runtime, or unset it."
  JAVA_VERSION=$("$java" -version 2>&1) || true
  version=$(sed -n 's/.*version "\([0-9]*\).*/\1/p' <<<"$JAVA_VERSION" | head -n 1) || true
  [ "${version:-0}" -ge 17 ] ||
    die "Java 17 or newer is needed, but $java is version ${version:-unknown}: set JAVA_HOME to a newer one."
}

find_python() {
  local candidate PATH=:$PATH:
  # Not the environment's own interpreter, which is about to be replaced.
  PATH=${PATH//:$ENV_DIR\/bin:/:}
  PATH=${PATH#:} PATH=${PATH%:}
  if [ -n "${PYTHON:-}" ]; then
    suits_python "$PYTHON" && { echo "$PYTHON"; return; }
    die "PYTHON=$PYTHON is not a Python 3.11, 3.12 or 3.13: point PYTHON at one."
  fi
  for candidate in python3 python3.11 python3.12 python3.13 python; do
    suits_python "$candidate" && { command -v "$candidate"; return; }
  done
  die "Python 3.11, 3.12 or 3.13 was not found (python3: $(python3 --version 2>&1 | head -n 1 || true)): install one, or set PYTHON to it."
}

suits_python() {
  command -v "$1" >/dev/null 2>&1 &&
    "$1" -c 'import sys; sys.exit(not ((3, 11) <= sys.version_info < (3, 14)))' >/dev/null 2>&1
}

# One name per folder, however it was given: the environment's programs hold it.
make_var() {
  mkdir -p -- "$VAR" 2>/dev/null || die "$VAR cannot be made: choose another place with STACKCAST_VAR."
  VAR=$(cd -- "$VAR" && pwd -P) || die "$VAR cannot be entered: choose another place with STACKCAST_VAR."
  ENV_DIR=$VAR/env
  JARS=$VAR/jars
}

# $1: what takes the room, $2: how much, in MB
check_disk() {
  local free
  free=$(df -Pk "$VAR" 2>/dev/null | awk 'NR == 2 {print $4}') || true
  # Where df cannot tell, the disk is tried.
  [ -z "$free" ] || [ "$((free / 1024))" -ge "$2" ] ||
    die "$VAR has $((free / 1024)) MB free, $1 $2 MB: make room, or choose another place with STACKCAST_VAR."
}

# $1: log file of the failed step, $2: what was being fetched
explain_failure() {
  if grep -qE 'DO NOT MATCH THE HASHES' "$1"; then
    die "a Python package is not the file that conf/packages names, and was not installed. With another index than usual, look where it has it from; which one it is says the log: $1"
  fi
  if grep -qiE 'no space left' "$1"; then die "the disk is full while fetching $2: make room and start again (log: $1)."; fi
  if grep -qiE 'NewConnectionError|ConnectTimeout|Name or service|name resolution|UnknownHostException|Network is unreachable|Connection refused|ProxyError|Could not fetch URL|No matching distribution|Host .* not found|ConnectException|SocketTimeoutException|SSLError' "$1"; then
    die "$2 could not be fetched: the network or its proxy does not let this machine reach the package registry (log: $1)."
  fi
  die "$2 could not be installed; the log says why: $1"
}

stamp() { cksum | tr ' ' '-'; }

is_done() { [ -f "$VAR/.done-$1" ] && [ "$(cat "$VAR/.done-$1")" = "$2" ]; }
# Before a step touches anything: broken off, it must not pass for done, whatever was done before it.
unmark() { rm -f "$VAR/.done-$1"; }
mark_done() { printf '%s' "$2" >"$VAR/.done-$1"; }

# $1: log file, rest: what pip installs. Nothing is taken along with it, and nothing fetched to build
# it, so that all there is comes from the lists, by hash.
install() {
  local log=$1
  shift
  "$ENV_DIR/bin/python" -m pip install --no-input --disable-pip-version-check --progress-bar off \
    --no-deps --no-build-isolation "$@" 2>&1 | tee -a "$log" |
    awk '/^ *(Downloading|Using cached) /{print "    " $2 " " $3 ($4 ? " " $4 : ""); fflush()}' >&2 ||
    explain_failure "$log" "Python packages"
}

# $1: name of the step, $2: its stamp, rest: lists of conf/packages; a dot is our own package
install_packages() {
  local name=$1 stamp=$2 list log=$VAR/log/pip-$1.log
  shift 2
  unmark "$name"
  rm -f "$log"
  export PIP_RETRIES=${PIP_RETRIES:-2} PIP_DEFAULT_TIMEOUT=${PIP_DEFAULT_TIMEOUT:-60}
  for list in "$@"; do
    case "$list" in
      .) install "$log" -e "$ROOT" ;;
      *) install "$log" --require-hashes -r "$ROOT/conf/packages/$list.txt" ;;
    esac
  done
  mark_done "$name" "$stamp"
}

# Whether the jars are those of the list, and no others.
jars_are_known() {
  [ "$(cd "$JARS" && sha256sum -- */*.jar | LC_ALL=C sort)" = "$(LC_ALL=C sort "$ROOT/conf/jars.sha256")" ]
}

install_jars() {
  local ivy jar log=$VAR/log/ivy.log pyspark
  unmark jars
  # Of these files: others of the same names are others to a JVM.
  unmark classes
  pyspark=$(pyspark_home)
  ivy=("$pyspark"/jars/ivy-*.jar)
  # Those of an earlier ivy.xml would stay on Spark's class path beside the new ones.
  for jar in "$JARS"/spark/*.jar; do rm -f "$pyspark/jars/${jar##*/}"; done
  rm -rf "$JARS" && mkdir -p "$JARS"
  if ! "$(java_program)" -jar "${ivy[0]}" -ivy "$ROOT/conf/ivy.xml" -cache "$VAR/ivy-cache" -types jar bundle \
      -retrieve "$JARS/[conf]/[artifact]-[revision].[ext]" 2>&1 | tee "$log" |
      awk '/SUCCESSFUL/{print "    " $3; fflush()}' >&2 || grep -q 'UNRESOLVED\|FAILED DOWNLOADS' "$log"; then
    explain_failure "$log" "jars"
  fi
  rm -rf "$VAR/ivy-cache"
  if [ -f "$ROOT/conf/jars.sha256" ] && ! jars_are_known; then
    die "a jar in $JARS is not the one that conf/jars.sha256 names. With another repository than usual, look where it has it from; after an edit of conf/ivy.xml, write the list anew: (cd $JARS && sha256sum */*.jar) >conf/jars.sha256"
  fi
  # In pyspark's own folder, a plain spark-submit of this environment finds them too.
  cp "$JARS"/spark/*.jar "$pyspark/jars/"
  mark_done jars "$1"
}

# Class data (CDS) are of no use behind a folder with files in it, as conf is, and Spark puts the
# folder of its settings first. By a name with a colon it finds the settings, and the JVM, for which
# a colon ends an entry, nothing; behind the jars conf does no harm, and is found.
use_class_data() {
  [ -f "$VAR/classes.jsa" ] && [ -z "${SPARK_CONF_DIR:-}" ] && [ -d "$VAR/conf:" ] || return 0
  export SPARK_CONF_DIR=$VAR/conf:
  export SPARK_DIST_CLASSPATH=$ROOT/conf${SPARK_DIST_CLASSPATH:+:$SPARK_DIST_CLASSPATH}
  # Where it does not fit, the JVM does without and says nothing.
  export SPARK_SUBMIT_OPTS="\"-XX:SharedArchiveFile=$VAR/classes.jsa\" -Xlog:cds*=off ${SPARK_SUBMIT_OPTS:-}"
}

# $1: stamp. A JVM that maps class data does without reading and linking ten thousand classes.
make_class_data() {
  local archive=$VAR/classes.jsa
  unmark classes
  rm -f "$archive"
  ln -sfn "$ROOT/conf" "$VAR/conf:"
  (
    export_environment
    export SPARK_CONF_DIR=$VAR/conf: SPARK_DIST_CLASSPATH=$ROOT/conf
    export SPARK_SUBMIT_OPTS="\"-XX:ArchiveClassesAtExit=$archive.new\" -Xlog:disable"
    cd "$ROOT" && python -m jobs.adapters.tables.class_data
  ) >"$VAR/log/classes.log" 2>&1 && mv "$archive.new" "$archive" ||
    say "that failed, and starts take longer; the log says why: $VAR/log/classes.log"
  # Not tried again either way.
  mark_done classes "$1"
}

# Fails, and says nothing, where the environment is not whole. Isolated, since a pyspark of the
# current folder or of PYTHONPATH is not the environment's.
pyspark_home() {
  "$ENV_DIR/bin/python" -I -c \
    'import importlib.util as u; print(u.find_spec("pyspark").submodule_search_locations[0])' 2>/dev/null
}

runtime_works() { is_done runtime "$1" && pyspark_home >/dev/null; }

# $1: runtime, test or bench (which is test, and what benchmarks compare with)
ensure_environment() {
  local name python python_stamp test_stamp bench_stamp jar_stamp class_stamp
  check_system
  check_java
  make_var
  # The environment runs this clone's code and holds its own place, so it serves no other of either;
  # what pyproject.toml tells its tools does not matter to it.
  python_stamp=$({
    printf '%s\n' "$ROOT" "$ENV_DIR"
    cat "$ROOT"/conf/packages/*.txt
    sed '/^\[tool\./,$d' "$ROOT/pyproject.toml"
  } | stamp)
  test_stamp=test-$python_stamp
  bench_stamp=bench-$python_stamp
  jar_stamp=$python_stamp-$(stamp <"$ROOT/conf/ivy.xml")
  # Another Java cannot read it.
  class_stamp=$jar_stamp-$(printf %s "$JAVA_VERSION" | stamp)
  if runtime_works "$python_stamp" && is_done jars "$jar_stamp" &&
    is_done classes "$class_stamp" &&
    { [ "$1" = runtime ] || is_done test "$test_stamp"; } &&
    { [ "$1" != bench ] || is_done bench "$bench_stamp"; }; then return; fi

  mkdir -p "$VAR/log" 2>/dev/null && [ -w "$VAR" ] ||
    die "$VAR cannot be written: choose another place with STACKCAST_VAR."
  if command -v flock >/dev/null; then
    exec 9>"$VAR/.setup-lock"
    flock -n 9 || { say "another start is setting up $VAR; waiting for it"; flock 9; }
  fi
  if ! runtime_works "$python_stamp"; then
    check_disk "the environment needs" 3072
    python=$(find_python) || exit 1
    say "[1/4] a virtual environment in $ENV_DIR ($("$python" --version))"
    for name in runtime jars classes test bench; do unmark "$name"; done
    rm -rf "$ENV_DIR"
    "$python" -m venv "$ENV_DIR" >"$VAR/log/venv.log" 2>&1 ||
      die "$python cannot make a virtual environment; its venv module may be missing (package python3-venv). Log: $VAR/log/venv.log"
    say "[2/4] Python packages (a minute or more; log: $VAR/log/pip-runtime.log)"
    install_packages runtime "$python_stamp" build runtime .
  fi
  if ! is_done jars "$jar_stamp"; then
    check_disk "the jars need" 500
    say "[3/4] jars for Delta, Kafka and the lab's broker (a minute; log: $VAR/log/ivy.log)"
    install_jars "$jar_stamp"
  fi
  if ! is_done classes "$class_stamp"; then
    say "[4/4] class data of the jars, for quick starts (half a minute; log: $VAR/log/classes.log)"
    make_class_data "$class_stamp"
  fi
  if [ "$1" != runtime ] && ! is_done test "$test_stamp"; then
    check_disk "the packages for tests need" 500
    say "[+] packages for tests (log: $VAR/log/pip-test.log)"
    install_packages test "$test_stamp" test
  fi
  if [ "$1" = bench ] && ! is_done bench "$bench_stamp"; then
    check_disk "the packages for benchmarks need" 500
    say "[+] packages that benchmarks compare with (log: $VAR/log/pip-bench.log)"
    install_packages bench "$bench_stamp" bench
  fi
  [ ! -e "$VAR/.setup-lock" ] || exec 9>&-
  say "the environment is ready"
}

# The files that kernels are in, and all that these import: what may be compiled into a kernel.
kernel_sources() {
  local files more
  files=$(grep -rl --include='*.py' njit udfs) || return 0
  while :; do
    # A module, or all modules of a package.
    more=$({
      printf '%s\n' "$files"
      # shellcheck disable=SC2086  # one word each
      sed -nE 's/^ *(from|import) +(udfs[A-Za-z0-9_.]*).*/\2/p' $files | LC_ALL=C sort -u |
        tr . / | while read -r file; do
          for file in "$file.py" "$file"/*.py; do [ ! -f "$file" ] || echo "$file"; done
        done
    } | LC_ALL=C sort -u)
    [ "$more" != "$files" ] || break
    files=$more
  done
  printf '%s\n' "$files"
}

# Numba looks at the age of the file that a kernel is in, and not at those whose functions and
# constants were compiled into it: other sources get another folder.
choose_kernel_cache() {
  local folder digest
  # shellcheck disable=SC2046  # one word each
  digest=$(cd "$ROOT" && cksum /dev/null $(kernel_sources) | stamp)
  NUMBA_CACHE_DIR=$VAR/numba/$digest
  if [ -d "$NUMBA_CACHE_DIR" ]; then return; fi
  mkdir -p -- "$NUMBA_CACHE_DIR" 2>/dev/null || true
  # A job that started before the sources changed may still write to its own: that of a day stays.
  for folder in "$VAR"/numba/*; do
    [ "$folder" = "$NUMBA_CACHE_DIR" ] || [ -n "$(find "$folder" -prune -mtime -1)" ] ||
      rm -rf -- "$folder"
  done
}

# Once for these sources, by two processes: else each that calls a kernel first compiles it, several
# of them the same at once.
compile_kernels() {
  [ ! -e "$NUMBA_CACHE_DIR/.compiled" ] && [ -w "$NUMBA_CACHE_DIR" ] || return 0
  say "compiling what runs per event (a minute, once for a version)"
  if (cd "$ROOT" && python -m udfs.delivery.kernel_cache >"$VAR/log/kernels.log" 2>&1); then
    : >"$NUMBA_CACHE_DIR/.compiled"
  else
    # Whoever calls a kernel compiles it.
    say "that failed; the log says why: $VAR/log/kernels.log"
  fi
}

export_environment() {
  export STACKCAST_HOME=$ROOT STACKCAST_VAR=$VAR
  export SPARK_HOME
  SPARK_HOME=$(pyspark_home)
  use_class_data
  export SPARK_CONF_DIR=${SPARK_CONF_DIR:-$ROOT/conf}
  export PYSPARK_PYTHON=$ENV_DIR/bin/python
  [ -n "${NUMBA_CACHE_DIR:-}" ] || choose_kernel_cache
  export NUMBA_CACHE_DIR
  # Container images often forbid bytecode next to the sources. In a folder of ours it disturbs no one,
  # and without it each process would compile every module again.
  if [ -n "${PYTHONDONTWRITEBYTECODE:-}" ]; then
    unset PYTHONDONTWRITEBYTECODE
    export PYTHONPYCACHEPREFIX=${PYTHONPYCACHEPREFIX:-$VAR/pycache}
  fi
  export PATH=$ENV_DIR/bin:$PATH
}

case "${1:-}" in
  "")
    say "what shall run? For a start ./spark-submit.sh jobs/itch_stream.py; --help lists the rest."
    exit 2
    ;;
  -h | --help)
    usage
    ;;
  test)
    shift
    ensure_environment test
    export_environment
    compile_kernels
    cd "$ROOT"
    exec python -m pytest "$@"
    ;;
  make)
    name=${2:-}
    case "$name" in
      p4 | docs | packages | structure) ;;
      *) die "'$name' is nothing that can be made; there are: docs p4 packages structure" ;;
    esac
    shift 2
    ensure_environment test
    export_environment
    # What is made is held by the tests, and made by their code.
    export PYTHONPATH="$ROOT:$ROOT/tests/support"
    exec python -m "tests.make.$name" "$@"
    ;;
  bench)
    name=${2:-}
    known=
    for file in "$ROOT"/benchmarks/[!_]*.py "$ROOT"/benchmarks/*/__main__.py; do
      [ -f "$file" ] || continue
      file=${file%/__main__.py} file=${file##*/} known="$known ${file%.py}"
    done
    case "$known " in *" $name "*) ;; *) name= ;; esac
    [ -n "$name" ] || die "there is no benchmark '${2:-}'; there are:${known:- none yet}"
    shift 2
    ensure_environment bench
    export_environment
    # Benchmarks are not installed; frames and oracles that they use are those of the tests. What they
    # count is the same in each run: networkx goes through sets of names.
    export PYTHONPATH="$ROOT:$ROOT/tests/support" PYTHONHASHSEED=0
    exec python -m "benchmarks.$name" "$@"
    ;;
  env)
    ensure_environment runtime
    export_environment
    for name in STACKCAST_HOME STACKCAST_VAR SPARK_HOME SPARK_CONF_DIR SPARK_DIST_CLASSPATH SPARK_SUBMIT_OPTS \
      PYSPARK_PYTHON NUMBA_CACHE_DIR PYTHONPYCACHEPREFIX PATH; do
      [ -z "${!name:-}" ] || printf 'export %s=%q\n' "$name" "${!name}"
    done
    [ -z "${PYTHONPYCACHEPREFIX:-}" ] || echo 'unset PYTHONDONTWRITEBYTECODE'
    ;;
  *)
    ensure_environment runtime
    export_environment
    case " $* " in *_stream.py\ * | *rerequest.py\ * | *\ --demo\ *) compile_kernels ;; esac
    exec "$SPARK_HOME/bin/spark-submit" "$@"
    ;;
esac
