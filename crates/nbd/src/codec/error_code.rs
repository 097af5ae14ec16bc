//! Error values of replies.

/// An error value the protocol defines, section "Error values".
///
/// The numbers are the protocol's own and equal Linux's errno of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum ErrorCode {
    /// `NBD_EPERM`: a write to a read-only export.
    NotPermitted = 1,
    /// `NBD_EIO`: the medium failed.
    Io = 5,
    /// `NBD_ENOMEM`: out of memory.
    NoMemory = 12,
    /// `NBD_EINVAL`: an invalid request.
    Invalid = 22,
    /// `NBD_ENOSPC`: no space, or a write past the end.
    NoSpace = 28,
    /// `NBD_EOVERFLOW`: the reply would be too large.
    Overflow = 75,
    /// `NBD_ENOTSUP`: a fast zero that would not be fast.
    NotSupported = 95,
    /// `NBD_ESHUTDOWN`: the server is going away.
    Shutdown = 108,
}

impl ErrorCode {
    /// Every code.
    pub const ALL: [ErrorCode; 8] = [
        ErrorCode::NotPermitted,
        ErrorCode::Io,
        ErrorCode::NoMemory,
        ErrorCode::Invalid,
        ErrorCode::NoSpace,
        ErrorCode::Overflow,
        ErrorCode::NotSupported,
        ErrorCode::Shutdown,
    ];

    /// Returns the number on the wire.
    pub fn to_wire(self) -> u32 {
        self as u32
    }

    /// Returns the code of an error field, or `None` if it is zero, which is no error. An
    /// unknown value counts as `NBD_EINVAL`, as the protocol requires of clients.
    pub fn from_wire(value: u32) -> Option<ErrorCode> {
        if value == 0 {
            return None;
        }
        let known = ErrorCode::ALL.into_iter().find(|code| code.to_wire() == value);
        Some(known.unwrap_or(ErrorCode::Invalid))
    }

    /// Returns the protocol's name for it.
    pub fn name(self) -> &'static str {
        match self {
            ErrorCode::NotPermitted => "EPERM",
            ErrorCode::Io => "EIO",
            ErrorCode::NoMemory => "ENOMEM",
            ErrorCode::Invalid => "EINVAL",
            ErrorCode::NoSpace => "ENOSPC",
            ErrorCode::Overflow => "EOVERFLOW",
            ErrorCode::NotSupported => "ENOTSUP",
            ErrorCode::Shutdown => "ESHUTDOWN",
        }
    }
}

impl core::fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name())
    }
}
