"""The lab as processes: broker and network brought up, held and taken down."""
