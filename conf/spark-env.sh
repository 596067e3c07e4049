# Spark's scripts read this file before they start a JVM.
#
# bin/spark-class always starts Java with two options for which Java prints a warning that no logging
# configuration can hide. Spark uses the module only for linear algebra, and has a fallback if the module is
# missing. Java 25 and later do not have the package, and ignore the option.
case "$0" in
  */spark-class)
    # Otherwise the function is exported and replaces exec in programs that the job starts.
    set +a
    # In POSIX mode, Bash does not permit a function with this name.
    set +o posix
    exec() {
      local java word module=--add-modules=jdk.incubator.vector command=()
      local package=$module
      java=$(readlink -f "$(command -v "$1")")
      if grep -Eqs '^JAVA_VERSION="(2[5-9]|[3-9][0-9])' "${java%/bin/java}/release"; then
        package=--add-opens=java.base/sun.security.action=ALL-UNNAMED
      fi
      for word; do
        case "$word" in
          "$module" | "$package") ;;
          *) command+=("$word") ;;
        esac
      done
      builtin exec "${command[@]}"
    }
    ;;
esac
