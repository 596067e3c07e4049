"""Files of keys that authenticate summaries: master keys on the driver, its own at a host."""

from __future__ import annotations

import os
from pathlib import Path

from stackcast.jobs.adapters.app.settings import PREFIX, Settings
from stackcast.udfs.errors import SettingsError
from stackcast.udfs.messages.summary_keys import SummaryKey, read_keys


def keys_in(path: Path, setting: str = "") -> list[SummaryKey]:
    """Returns the keys of a file, in its order. setting: that names the file, if one does.

    Raises SettingsError BAD_KEYS (it cannot be read, or a line is none), KEYS_NOT_PRIVATE (others may read
    it: as with ssh's private keys, a group may where the file belongs to another account).
    """
    name = f"{setting}: {path}" if setting else str(path)
    try:
        with path.open(encoding="utf-8") as file:
            about = os.fstat(file.fileno())
            closed_to = 0o077 if about.st_uid == os.getuid() else 0o007
            if about.st_mode & closed_to:
                raise SettingsError(
                    "KEYS_NOT_PRIVATE",
                    f"{name} can be read by others (mode {about.st_mode & 0o777:04o}): chmod 600",
                )
            text = file.read()
    except OSError as error:
        raise SettingsError("BAD_KEYS", f"{name}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise SettingsError("BAD_KEYS", f"{name} is no text") from None
    return read_keys(text, name)


def signing_key(settings: Settings) -> SummaryKey | None:
    """Returns the master key that summaries are signed with: the first one of the file that is set,
    None without one. Raises as `keys_in`."""
    if not settings.summary_keys:
        return None
    return keys_in(Path(settings.summary_keys), f"{PREFIX}summary.keys")[0]
