"""Files of keys that authenticate summaries: master keys on the driver, its own at a host."""

from __future__ import annotations

import os
from pathlib import Path

from stackcast.jobs.adapters.app.settings import PREFIX, Settings
from stackcast.udfs.errors import SettingsError
from stackcast.udfs.messages.summary_keys import SummaryKey, read_keys


def keys_in(path: Path, setting: str = "") -> list[SummaryKey]:
    """Return the keys of a file, in the order of its lines.

    Args:
        path: path of the file.
        setting: setting that names the file; empty if there is none.

    Raises:
        SettingsError: ``BAD_KEYS`` if the file cannot be read or a line is not a key,
            ``KEYS_NOT_PRIVATE`` if other users can read it. As with private keys of ssh, the group
            may read a file that belongs to another account.
    """
    name = f"{setting}: {path}" if setting else str(path)
    try:
        with path.open(encoding="utf-8") as file:
            about = os.fstat(file.fileno())
            closed_to = 0o077 if about.st_uid == os.getuid() else 0o007
            if about.st_mode & closed_to:
                raise SettingsError(
                    "KEYS_NOT_PRIVATE",
                    f"{name} is readable by other users (mode {about.st_mode & 0o777:04o}): run "
                    "chmod 600",
                )
            text = file.read()
    except OSError as error:
        raise SettingsError("BAD_KEYS", f"{name}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise SettingsError("BAD_KEYS", f"{name} is not a UTF-8 text file") from None
    return read_keys(text, name)


def signing_key(settings: Settings) -> SummaryKey | None:
    """Return the master key that signs summaries, which is the first key of the configured file.

    Returns:
        None if no file is configured.

    Raises:
        SettingsError: see `keys_in`.
    """
    if not settings.summary_keys:
        return None
    return keys_in(Path(settings.summary_keys), f"{PREFIX}summary.keys")[0]
