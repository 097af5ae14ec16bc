//! Every bound of the protocol layer, with its unit.

/// Longest string the protocol allows for export names, descriptions and messages (bytes).
/// Section "Conventions".
pub const STRING_BYTES_MAX: usize = 4096;

/// Default for the longest payload of one read or write (bytes), which every client may assume
/// if nothing was negotiated. Section "Size constraints".
pub const PAYLOAD_BYTES_DEFAULT: u32 = 32 << 20;

/// Longest payload of a refused request that the server reads and discards (bytes), so that the
/// connection continues. A longer one ends the session.
pub const DRAIN_BYTES_MAX: u64 = 64 << 20;

/// Longest data of one option (bytes). Two full strings and many queries fit.
pub const OPTION_BYTES_MAX: u32 = 64 << 10;

/// Maximum number of options that a client may send in one handshake.
pub const OPTIONS_MAX: u32 = 256;

/// Maximum number of queries in one meta context option.
pub const QUERIES_MAX: u32 = 64;

/// Maximum number of meta contexts that an export may offer and a client may request.
pub const CONTEXTS_MAX: usize = 8;

/// Maximum number of exports that a server may offer.
pub const EXPORTS_MAX: usize = 1024;

/// Largest minimum block size the protocol allows (bytes).
pub const MINIMUM_BLOCK_MAX: u32 = 64 << 10;

/// Maximum number of extents in one block status chunk that the client accepts. Section
/// "Structured reply types", `NBD_REPLY_TYPE_BLOCK_STATUS`.
pub const STATUS_EXTENTS_MAX: u64 = 1 << 20;

/// Longest data of one option reply the client accepts (bytes).
pub const OPTION_REPLY_BYTES_MAX: u32 = 64 << 10;

/// Maximum number of replies to one option that the client accepts.
pub const OPTION_REPLIES_MAX: u32 = 1024;

/// Maximum number of requests that a client session keeps in flight.
pub const CLIENT_IN_FLIGHT_MAX: usize = 4096;

/// Maximum number of separate pieces of one read reply that the client keeps track of. Pieces
/// that adjoin count as one, so a server that answers in order never comes near it.
pub const READ_PIECES_MAX: usize = 8;

const _: () = assert!(PAYLOAD_BYTES_DEFAULT as u64 <= DRAIN_BYTES_MAX);
const _: () = assert!(OPTION_BYTES_MAX as usize >= 2 * STRING_BYTES_MAX);
const _: () = assert!(OPTION_REPLY_BYTES_MAX as usize >= 2 * STRING_BYTES_MAX);
const _: () = assert!(CONTEXTS_MAX <= 8, "a context set is an 8-bit mask");
