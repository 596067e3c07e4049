#!/usr/bin/env bash
# Creates the environment on first use, and then runs a job, the tests or a benchmark in it.
#
#   ./spark-submit.sh [spark-submit options] jobs/JOB.py [arguments]
#
#     jobs/itch_stream.py       deliver ITCH messages (main job); start a lab if no broker is configured
#     jobs/attribute_stream.py  deliver attribute/value events; start a lab of sensors if no broker is configured
#     jobs/create_tables.py     create missing Delta tables, and fill empty ones from files
#     jobs/load_topology.py     load a network into the tables: a generated one or a published one
#     jobs/refresh_switches.py  keep the entries of the switches in sync with the tables
#     jobs/replica_controller.py  run the controller of replicated states and write their tables
#     jobs/state_stream.py      publish rows of a table, or records of a topic, as replicated states
#     jobs/retune_trees.py      choose the virtual trees from the record of publications
#     jobs/rerequest.py         answer requests of hosts for lost notifications
#     jobs/check_delivery.py    prove from the receipts of hosts that nothing was lost
#     jobs/deliver_from.py      deliver past events that match a subscription
#     jobs/backup.py            back up tables, checkpoint and positions together, and restore them
#     jobs/console.py           show a deployment in the browser and edit its subscriptions
#     jobs/run_sql.py           run SQL on the tables; without statements, prompt for them
#     examples/mobility/mobility_tracking.py  track devices in a city with replicated states, and check the result
#
#   ./spark-submit.sh test [pytest options]      run unit and integration tests and linters; -m unit: only unit tests;
#                                                --all: long tests, too; FILE: only the tests of a file
#   ./spark-submit.sh bench NAME [arguments]     run one of these benchmarks:
#
#     attributes   headers, entries and frames of attribute/value events
#     camus        filtering in a switch or at a host, with sockets and in a model; compile time
#     compile      time to compile subscriptions
#     console      frame rate of the console's map
#     dataframes   time to apply rules to the rows of a DataFrame, with mapInArrow and with UDFs
#     encodings    all encodings compared with BIER, Elmo, unicast, brokers and OpenFlow multicast
#     kernels      time to build frames from messages
#     match        time to decode events and find their receivers
#     p4           passes, entries and frames of the P4 programs
#     pipeline     the complete path from Kafka to the wire
#     states       memory, messages, latency and recovery of replicated state
#     trees        length of header stacks with virtual trees, and speed of the encoder
#
#   ./spark-submit.sh make p4 --p4c PATH [--bmv2 PATH]    compile the programs in p4/
#   ./spark-submit.sh make docs                  write the tables of settings and of lab options in docs/reference
#   ./spark-submit.sh make p4runtime             generate the modules of P4Runtime's messages in schemas/p4runtime
#   ./spark-submit.sh make audit [--pip-audit PATH]    report known vulnerabilities of the locked versions
#   ./spark-submit.sh make packages --uv PATH    write the hashes of Python packages in conf/packages
#   ./spark-submit.sh make site [--out FOLDER]   render docs/ as a site with search in var/site
#   ./spark-submit.sh make structure             print modules, lines, modules with one caller and import cycles
#   eval "$(./spark-submit.sh env)"              put spark-submit and stackcast on the path (stackcast --help)
#
# The environment and all results are in var/, or in $STACKCAST_VAR; delete that folder to start from scratch.
# Set PYTHON or JAVA_HOME to use another Python (3.11 to 3.13) or Java (17 or newer). docs/tutorials/write-a-rule.md is a
# two-minute introduction, and docs/index.md lists all pages.
set -euo pipefail
# cd would search the folders of CDPATH for the same name.
unset CDPATH

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
VAR=${STACKCAST_VAR:-$ROOT/var}
# Set by make_var, once the folder exists.
ENV_DIR=
JARS=
# Set by check_java.
JAVA_VERSION=

say() { printf 'stackcast: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

usage() { sed -n '2,/^set /s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }

# Chooses Java in the same way as Spark's own scripts.
java_program() {
  if [ -n "${JAVA_HOME:-}" ]; then echo "$JAVA_HOME/bin/java"; else command -v java || true; fi
}

check_system() {
  [ "$(uname -s)" = Linux ] || die "Stackcast needs Linux, but this system is $(uname -s)."
}

check_java() {
  local java version
  java=$(java_program)
  [ -n "$java" ] || die "Java was not found: install a Java 17 runtime, or set JAVA_HOME to one."
  [ -x "$java" ] || die "JAVA_HOME=$JAVA_HOME has no bin/java: set it to a Java 17 runtime, or unset it."
  JAVA_VERSION=$("$java" -version 2>&1) || true
  version=$(sed -n 's/.*version "\([0-9]*\).*/\1/p' <<<"$JAVA_VERSION" | head -n 1) || true
  [ "${version:-0}" -ge 17 ] ||
    die "Java 17 or newer is needed, but $java is version ${version:-unknown}: set JAVA_HOME to a newer one."
}

find_python() {
  local candidate PATH=:$PATH:
  # Skip the environment's own interpreter, which is about to be replaced.
  PATH=${PATH//:$ENV_DIR\/bin:/:}
  PATH=${PATH#:} PATH=${PATH%:}
  if [ -n "${PYTHON:-}" ]; then
    suits_python "$PYTHON" && { echo "$PYTHON"; return; }
    die "PYTHON=$PYTHON is not a Python 3.11, 3.12 or 3.13: set PYTHON to one of these, or unset it."
  fi
  for candidate in python3 python3.11 python3.12 python3.13 python; do
    suits_python "$candidate" && { command -v "$candidate"; return; }
  done
  die "Python 3.11, 3.12 or 3.13 was not found (python3: $(python3 --version 2>&1 | head -n 1 || true)): install one of these, or set PYTHON to its path."
}

suits_python() {
  command -v "$1" >/dev/null 2>&1 &&
    "$1" -c 'import sys; sys.exit(not ((3, 11) <= sys.version_info < (3, 14)))' >/dev/null 2>&1
}

# Resolves the folder to a single name, because the programs of the environment contain it.
make_var() {
  mkdir -p -- "$VAR" 2>/dev/null || die "cannot create $VAR: set STACKCAST_VAR to another folder."
  VAR=$(cd -- "$VAR" && pwd -P) || die "cannot enter $VAR: set STACKCAST_VAR to another folder."
  ENV_DIR=$VAR/env
  JARS=$VAR/jars
}

# Container images often forbid bytecode next to the sources. Without bytecode each process would
# compile every module again, so it is stored in a separate folder, also during the installation of packages.
choose_bytecode_folder() {
  [ -n "${PYTHONDONTWRITEBYTECODE:-}" ] || return 0
  unset PYTHONDONTWRITEBYTECODE
  export PYTHONPYCACHEPREFIX=${PYTHONPYCACHEPREFIX:-$VAR/pycache}
}

# $1: subject and verb of the message, such as "the jars need", $2: required space in MB
check_disk() {
  local free
  free=$(df -Pk "$VAR" 2>/dev/null | awk 'NR == 2 {print $4}') || true
  # If df does not report a value, assume that there is enough space.
  [ -z "$free" ] || [ "$((free / 1024))" -ge "$2" ] ||
    die "$VAR has $((free / 1024)) MB free, but $1 $2 MB: free some space, or set STACKCAST_VAR to a folder on another disk."
}

# $1: log file of the failed step, $2: name of the objects to be installed
explain_failure() {
  if grep -qE 'DO NOT MATCH THE HASHES' "$1"; then
    die "a Python package does not match its hash in conf/packages, so it was not installed. If you use a package index other than PyPI, check where it gets the file. The log contains the name of the package: $1"
  fi
  if grep -qiE 'no space left' "$1"; then die "the disk is full, so $2 could not be fetched: free some space and start again (log: $1)."; fi
  if grep -qiE 'NewConnectionError|ConnectTimeout|Name or service|name resolution|UnknownHostException|Network is unreachable|Connection refused|ProxyError|Could not fetch URL|No matching distribution|Host .* not found|ConnectException|SocketTimeoutException|SSLError' "$1"; then
    die "$2 could not be fetched: this machine cannot reach the package registry; check the network and its proxy (log: $1)."
  fi
  die "$2 could not be installed; see the log: $1"
}

# Rejects a folder that another clone uses, because this would replace the environment of running programs.
check_clone() {
  local other
  other=$(cat "$VAR/.clone" 2>/dev/null) || true
  [ -z "$other" ] || [ "$other" = "$ROOT" ] || [ ! -f "$other/spark-submit.sh" ] ||
    die "$VAR is the folder of the clone $other: set STACKCAST_VAR to another folder, or remove $VAR/.clone to take it over."
  [ "$other" = "$ROOT" ] || printf '%s' "$ROOT" >"$VAR/.clone"
}

stamp() { cksum | tr ' ' '-'; }

is_done() { [ -f "$VAR/.done-$1" ] && [ "$(cat "$VAR/.done-$1")" = "$2" ]; }
# Called before a step changes anything, so that an interrupted step does not count as done.
unmark() { rm -f "$VAR/.done-$1"; }
mark_done() { printf '%s' "$2" >"$VAR/.done-$1"; }

# $1: log file, then: arguments for pip install. pip adds no dependencies and fetches no build tools, so
# the lists contain the hash of every installed file.
install() {
  local log=$1
  shift
  "$ENV_DIR/bin/python" -m pip install --no-input --disable-pip-version-check --progress-bar off \
    --no-deps --no-build-isolation "$@" 2>&1 | tee -a "$log" |
    awk '/^ *(Downloading|Using cached) /{print "    " $2 " " $3 ($4 ? " " $4 : ""); fflush()}' >&2 ||
    explain_failure "$log" "Python packages"
}

# $1: name of the step, $2: its stamp, then: lists of conf/packages; a dot is the package of Stackcast
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

# Succeeds if the jars are exactly those of the list.
jars_are_known() {
  [ "$(cd "$JARS" && sha256sum -- */*.jar | LC_ALL=C sort)" = "$(LC_ALL=C sort "$ROOT/conf/jars.sha256")" ]
}

install_jars() {
  local ivy jar log=$VAR/log/ivy.log pyspark
  unmark jars
  # The class archive refers to these jars. A JVM rejects the archive if they are replaced.
  unmark classes
  pyspark=$(pyspark_home)
  ivy=("$pyspark"/jars/ivy-*.jar)
  # Jars of an earlier ivy.xml would stay on Spark's class path next to the new ones.
  for jar in "$JARS"/spark/*.jar; do rm -f "$pyspark/jars/${jar##*/}"; done
  rm -rf "$JARS" && mkdir -p "$JARS"
  if ! "$(java_program)" -jar "${ivy[0]}" -ivy "$ROOT/conf/ivy.xml" -cache "$VAR/ivy-cache" -types jar bundle \
      -retrieve "$JARS/[conf]/[artifact]-[revision].[ext]" 2>&1 | tee "$log" |
      awk '/SUCCESSFUL/{print "    " $3; fflush()}' >&2 || grep -q 'UNRESOLVED\|FAILED DOWNLOADS' "$log"; then
    explain_failure "$log" "jars"
  fi
  rm -rf "$VAR/ivy-cache"
  if [ -f "$ROOT/conf/jars.sha256" ] && ! jars_are_known; then
    die "the jars in $JARS differ from the list in conf/jars.sha256. If you use a repository other than Maven Central, check where it gets its files. After an edit of conf/ivy.xml, update the list: (cd $JARS && sha256sum */*.jar) >conf/jars.sha256"
  fi
  # Copied to pyspark's own folder, so that a plain spark-submit of this environment also finds them.
  cp "$JARS"/spark/*.jar "$pyspark/jars/"
  mark_done jars "$1"
}

# A JVM ignores the archive of class data (CDS) if its class path contains a non-empty folder before
# the jars, and Spark puts the folder of its settings first. So Spark gets a link to conf with a name that
# ends with a colon. Spark finds the settings there, but the JVM reads the colon as the end of an entry of the
# class path, and the folder without the colon does not exist. conf itself follows the jars.
use_class_data() {
  [ -f "$VAR/classes.jsa" ] && [ -z "${SPARK_CONF_DIR:-}" ] && [ -d "$VAR/conf:" ] || return 0
  export SPARK_CONF_DIR=$VAR/conf:
  export SPARK_DIST_CLASSPATH=$ROOT/conf${SPARK_DIST_CLASSPATH:+:$SPARK_DIST_CLASSPATH}
  # If the archive is not valid for the JVM, the JVM silently starts without it.
  export SPARK_SUBMIT_OPTS="\"-XX:SharedArchiveFile=$VAR/classes.jsa\" -Xlog:cds*=off ${SPARK_SUBMIT_OPTS:-}"
}

# $1: stamp. A JVM that maps class data need not read and link ten thousand classes.
make_class_data() {
  local archive=$VAR/classes.jsa
  unmark classes
  rm -f "$archive"
  ln -sfn "$ROOT/conf" "$VAR/conf:"
  (
    export_environment
    export SPARK_CONF_DIR=$VAR/conf: SPARK_DIST_CLASSPATH=$ROOT/conf
    export SPARK_SUBMIT_OPTS="\"-XX:ArchiveClassesAtExit=$archive.new\" -Xlog:disable"
    cd "$ROOT" && python -m stackcast.jobs.adapters.tables.class_data
  ) >"$VAR/log/classes.log" 2>&1 && mv "$archive.new" "$archive" ||
    say "class data could not be archived, so starts take longer; see the log: $VAR/log/classes.log"
  # Marked as done even after a failure, so that later starts do not try again.
  mark_done classes "$1"
}

# Fails silently if the environment is incomplete. Python runs in isolated mode, because the current folder or
# PYTHONPATH may contain another pyspark.
pyspark_home() {
  "$ENV_DIR/bin/python" -I -c \
    'import importlib.util as u; print(u.find_spec("pyspark").submodule_search_locations[0])' 2>/dev/null
}

runtime_works() { is_done runtime "$1" && pyspark_home >/dev/null; }

# $1: runtime, test or bench; bench includes test
ensure_environment() {
  local name python python_stamp test_stamp bench_stamp jar_stamp class_stamp
  check_system
  check_java
  make_var
  choose_bytecode_folder
  # The environment contains the paths of this clone and of itself, so it is valid only for these paths. The
  # tool settings in pyproject.toml do not affect it.
  python_stamp=$({
    printf '%s\n' "$ROOT" "$ENV_DIR"
    cat "$ROOT"/conf/packages/*.txt
    sed '/^\[tool\./,$d' "$ROOT/pyproject.toml"
  } | stamp)
  test_stamp=test-$python_stamp
  bench_stamp=bench-$python_stamp
  jar_stamp=$python_stamp-$(stamp <"$ROOT/conf/ivy.xml")
  # A JVM of another version or with other modules cannot read the archive.
  class_stamp=$jar_stamp-$({
    printf %s "$JAVA_VERSION"
    cat "$ROOT/conf/spark-env.sh" 2>/dev/null || true
  } | stamp)
  if runtime_works "$python_stamp" && is_done jars "$jar_stamp" &&
    is_done classes "$class_stamp" &&
    { [ "$1" = runtime ] || is_done test "$test_stamp"; } &&
    { [ "$1" != bench ] || is_done bench "$bench_stamp"; }; then return; fi

  mkdir -p "$VAR/log" 2>/dev/null && [ -w "$VAR" ] ||
    die "cannot write to $VAR: set STACKCAST_VAR to another folder."
  if command -v flock >/dev/null; then
    exec 9>"$VAR/.setup-lock"
    flock -n 9 || { say "another start is setting up $VAR; waiting for it to finish"; flock 9; }
  fi
  check_clone
  if ! runtime_works "$python_stamp"; then
    check_disk "the environment needs" 3072
    python=$(find_python) || exit 1
    say "[1/4] creating a virtual environment in $ENV_DIR ($("$python" --version))"
    for name in runtime jars classes test bench; do unmark "$name"; done
    rm -rf "$ENV_DIR"
    "$python" -m venv "$ENV_DIR" >"$VAR/log/venv.log" 2>&1 ||
      die "$python cannot create a virtual environment; its venv module may be missing (package python3-venv). Log: $VAR/log/venv.log"
    say "[2/4] installing Python packages (a minute or more; log: $VAR/log/pip-runtime.log)"
    install_packages runtime "$python_stamp" build runtime console shell .
  fi
  if ! is_done jars "$jar_stamp"; then
    check_disk "the jars need" 500
    say "[3/4] fetching jars for Delta, Kafka and the lab's broker (a minute; log: $VAR/log/ivy.log)"
    install_jars "$jar_stamp"
  fi
  if ! is_done classes "$class_stamp"; then
    say "[4/4] archiving class data of the jars, for faster starts (half a minute; log: $VAR/log/classes.log)"
    make_class_data "$class_stamp"
  fi
  if [ "$1" != runtime ] && ! is_done test "$test_stamp"; then
    check_disk "the packages for tests need" 500
    say "[+] installing packages for tests (log: $VAR/log/pip-test.log)"
    install_packages test "$test_stamp" test
  fi
  if [ "$1" = bench ] && ! is_done bench "$bench_stamp"; then
    check_disk "the packages for benchmarks need" 500
    say "[+] installing packages for benchmarks (log: $VAR/log/pip-bench.log)"
    install_packages bench "$bench_stamp" bench
  fi
  [ ! -e "$VAR/.setup-lock" ] || exec 9>&-
  say "the environment is ready"
}

# Prints the files that contain kernels and all files that they import, directly or indirectly. This is all the
# code that may be compiled into a kernel.
kernel_sources() {
  local files more
  files=$(grep -rl --include='*.py' njit udfs) || return 0
  while :; do
    # An import names a module, or a package with all of its modules.
    more=$({
      printf '%s\n' "$files"
      # shellcheck disable=SC2086  # one word each
      sed -nE 's/^ *(from|import) +stackcast\.(udfs[A-Za-z0-9_.]*).*/\2/p' $files | LC_ALL=C sort -u |
        tr . / | while read -r file; do
          for file in "$file.py" "$file"/*.py; do [ ! -f "$file" ] || echo "$file"; done
        done
    } | LC_ALL=C sort -u)
    [ "$more" != "$files" ] || break
    files=$more
  done
  printf '%s\n' "$files"
}

# Numba checks the age of the file that contains a kernel, but not the age of the files whose functions and
# constants were compiled into the kernel. So each version of the sources gets its own folder.
choose_kernel_cache() {
  local folder digest
  # shellcheck disable=SC2046  # one word each
  digest=$(cd "$ROOT" && cksum /dev/null $(kernel_sources) | stamp)
  NUMBA_CACHE_DIR=$VAR/numba/$digest
  if [ -d "$NUMBA_CACHE_DIR" ]; then return; fi
  mkdir -p -- "$NUMBA_CACHE_DIR" 2>/dev/null || true
  # A job that started before the sources changed may still write to its folder, so folders stay for a day.
  for folder in "$VAR"/numba/*; do
    [ "$folder" = "$NUMBA_CACHE_DIR" ] || [ -n "$(find "$folder" -prune -mtime -1)" ] ||
      rm -rf -- "$folder"
  done
}

# Compiles the kernels once per version of the sources, in two processes. Otherwise each process would
# compile a kernel when it first calls it, and several processes would compile the same ones.
compile_kernels() {
  [ ! -e "$NUMBA_CACHE_DIR/.compiled" ] && [ -w "$NUMBA_CACHE_DIR" ] || return 0
  say "compiling the kernels that process events (a minute, once per version)"
  if (cd "$ROOT" && python -m stackcast.udfs.delivery.kernel_cache >"$VAR/log/kernels.log" 2>&1); then
    : >"$NUMBA_CACHE_DIR/.compiled"
  else
    # In this case, each process compiles the kernels that it calls.
    say "the kernels could not be compiled in advance, so starts take longer; see the log: $VAR/log/kernels.log"
  fi
}

export_environment() {
  export STACKCAST_HOME=$ROOT STACKCAST_VAR=$VAR
  export SPARK_HOME
  SPARK_HOME=$(pyspark_home)
  use_class_data
  export SPARK_CONF_DIR=${SPARK_CONF_DIR:-$ROOT/conf}
  # Spark's scripts cannot read a file whose path has blanks: they print an error and continue.
  case "$SPARK_CONF_DIR" in *[[:space:]]*) export SPARK_ENV_LOADED=1 ;; esac
  export PYSPARK_PYTHON=$ENV_DIR/bin/python
  [ -n "${NUMBA_CACHE_DIR:-}" ] || choose_kernel_cache
  export NUMBA_CACHE_DIR
  export PATH=$ENV_DIR/bin:$PATH
}

case "${1:-}" in
  "")
    say "no command given: start with ./spark-submit.sh jobs/itch_stream.py, or use --help for a list."
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
      audit | p4 | p4runtime | docs | packages | site | structure) ;;
      *) die "make has no target '$name'; targets: audit docs p4 p4runtime packages site structure" ;;
    esac
    shift 2
    ensure_environment test
    export_environment
    # The code that checks generated files in the tests also writes them.
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
    [ -n "$name" ] || die "there is no benchmark '${2:-}'; benchmarks:${known:- none yet}"
    shift 2
    ensure_environment bench
    export_environment
    # Benchmarks are not installed. They use helpers of the tests and modules of the examples.
    # networkx iterates over sets of names, so counts are the same in every run only with a fixed hash
    # seed.
    export PYTHONPATH="$ROOT:$ROOT/tests/support:$ROOT/examples" PYTHONHASHSEED=0
    exec python -m "benchmarks.$name" "$@"
    ;;
  env)
    ensure_environment runtime
    export_environment
    for name in STACKCAST_HOME STACKCAST_VAR SPARK_HOME SPARK_CONF_DIR SPARK_ENV_LOADED SPARK_DIST_CLASSPATH SPARK_SUBMIT_OPTS \
      PYSPARK_PYTHON NUMBA_CACHE_DIR PYTHONPYCACHEPREFIX PATH; do
      [ -z "${!name:-}" ] || printf 'export %s=%q\n' "$name" "${!name}"
    done
    [ -z "${PYTHONPYCACHEPREFIX:-}" ] || echo 'unset PYTHONDONTWRITEBYTECODE'
    ;;
  *)
    ensure_environment runtime
    export_environment
    # Errors in the command line, the properties file or a setting are reported here, before the JVM takes
    # seconds to start. The current folder is not on Python's path.
    PYTHONSAFEPATH=1 python -m stackcast.jobs.adapters.app.submission "$@" || exit $?
    # Spark serves its web pages at this address if they are enabled. Without it, they are on all interfaces.
    # A driver that a cluster starts inherits this environment, and must not announce a local address.
    case " $* " in
      *\ --deploy-mode\ cluster\ * | *deployMode=cluster\ *) ;;
      *) export SPARK_LOCAL_IP=${SPARK_LOCAL_IP:-127.0.0.1} ;;
    esac
    case " $* " in *\ --help\ *) ;; *_stream.py\ * | *rerequest.py\ * | *\ --demo\ *) compile_kernels ;; esac
    exec "$SPARK_HOME/bin/spark-submit" "$@"
    ;;
esac
