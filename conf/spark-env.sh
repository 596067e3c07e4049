# Spark's scripts read this file before they start a JVM.
#
# bin/spark-class always passes two options to Java that cause warnings, which no logging configuration can hide.
# One option adds a module that Spark uses only for linear algebra, and that it can do without. The other option
# opens a package that Java 25 and later do not have, so it has no effect there.
case "$0" in
  */spark-class)
    # Otherwise, the function would be exported, and would replace exec in programs that the job starts.
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
