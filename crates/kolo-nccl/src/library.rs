//! NCCL's library, loaded at run time: its location and the functions in use.
//!
//! All functions exist since NCCL 2.14, the version that added communicators whose calls do not block.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt::Display;
use std::sync::OnceLock;

use kolo_rendezvous::Error;

/// Environment variable that names NCCL's library file, instead of the search for `libnccl.so.2`.
pub const LIBRARY: &str = "KOLO_NCCL_LIBRARY";

/// `ncclResult_t`. Not an enumeration: a newer library may have more results.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Code(c_int);

impl Code {
    pub(super) const SUCCESS: Code = Code(0);
    pub(super) const IN_PROGRESS: Code = Code(7);
}

/// `ncclUniqueId`, by which the ranks of a communicator find each other.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct UniqueId(pub(super) [u8; 128]);

/// `ncclComm_t`.
pub(super) type Handle = *mut c_void;
/// `cudaStream_t`, which is the driver's `CUstream`.
pub(super) type Stream = *mut c_void;

/// `ncclConfig_t` as of 2.14. The given version tells a newer library to take its defaults for later fields.
#[repr(C)]
pub(super) struct Config {
    size: usize,
    magic: u32,
    version: u32,
    blocking: c_int,
    /// Padding in this version, the first field of a later one: set to NCCL's undefined value.
    undefined: c_int,
}

impl Config {
    /// Creates a configuration in which no call blocks, so that every wait can be given up.
    pub(super) fn nonblocking() -> Self {
        Config {
            size: size_of::<Self>(),
            magic: 0xcafe_beef,
            version: OLDEST as u32,
            blocking: 0,
            undefined: c_int::MIN,
        }
    }
}

/// The oldest version with all functions in use: 2.14.0.
const OLDEST: c_int = 21_400;

/// Declares the functions of NCCL, one per line, which are looked up when the library is loaded.
macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident = $symbol:literal ($($argument:ty),*) -> $result:ty;)+) => {
        pub(super) struct Library {
            /// `ncclGetVersion`: 10000 × major + 100 × minor + patch.
            pub(super) version: c_int,
            $($(#[$doc])* pub(super) $name: unsafe extern "C" fn($($argument),*) -> $result,)+
        }

        impl Library {
            /// Looks up all functions.
            ///
            /// # Safety
            ///
            /// The library must be NCCL, whose functions have these signatures.
            unsafe fn bind(library: &libloading::Library) -> Result<Library, libloading::Error> {
                Ok(Library {
                    version: 0,
                    // SAFETY: the caller promises NCCL's library, and `nccl.h` has this signature.
                    $($name: *unsafe { library.get($symbol.as_bytes()) }?,)+
                })
            }
        }
    };
}

functions! {
    get_version = "ncclGetVersion" (*mut c_int) -> Code;
    get_unique_id = "ncclGetUniqueId" (*mut UniqueId) -> Code;
    comm_init = "ncclCommInitRankConfig" (*mut Handle, c_int, UniqueId, c_int, *mut Config) -> Code;
    comm_async_error = "ncclCommGetAsyncError" (Handle, *mut Code) -> Code;
    comm_finalize = "ncclCommFinalize" (Handle) -> Code;
    comm_destroy = "ncclCommDestroy" (Handle) -> Code;
    comm_abort = "ncclCommAbort" (Handle) -> Code;
    error_string = "ncclGetErrorString" (Code) -> *const c_char;
    last_error = "ncclGetLastError" (Handle) -> *const c_char;
    group_start = "ncclGroupStart" () -> Code;
    group_end = "ncclGroupEnd" () -> Code;
    /// Send buffer, receive buffer, count, type, operation.
    all_reduce = "ncclAllReduce" (*const c_void, *mut c_void, usize, c_int, c_int, Handle, Stream) -> Code;
    /// Send buffer, receive buffer, count of one chunk, type, operation.
    reduce_scatter = "ncclReduceScatter" (*const c_void, *mut c_void, usize, c_int, c_int, Handle, Stream) -> Code;
    /// Send buffer, receive buffer, count of one chunk, type.
    all_gather = "ncclAllGather" (*const c_void, *mut c_void, usize, c_int, Handle, Stream) -> Code;
    /// Send buffer, receive buffer, count, type, root.
    broadcast = "ncclBroadcast" (*const c_void, *mut c_void, usize, c_int, c_int, Handle, Stream) -> Code;
    /// Send buffer, receive buffer, count, type, operation, root.
    reduce = "ncclReduce" (*const c_void, *mut c_void, usize, c_int, c_int, c_int, Handle, Stream) -> Code;
    /// Send buffer, count, type, peer.
    send = "ncclSend" (*const c_void, usize, c_int, c_int, Handle, Stream) -> Code;
    /// Receive buffer, count, type, peer.
    receive = "ncclRecv" (*mut c_void, usize, c_int, c_int, Handle, Stream) -> Code;
}

impl Library {
    /// Returns the library. The first call loads it; it is never unloaded, because its threads run in it.
    pub(super) fn get() -> Result<&'static Library, Error> {
        static LOADED: OnceLock<Result<Library, Error>> = OnceLock::new();
        LOADED.get_or_init(|| load(std::env::var(LIBRARY).ok())).as_ref().map_err(Error::clone)
    }

    /// Version as text, such as `2.27.3`.
    pub(super) fn version(&self) -> String {
        version_text(self.version)
    }

    /// Creates a unique id. NCCL starts a thread at which the ranks meet.
    pub(super) fn unique_id(&self) -> Result<UniqueId, Error> {
        let mut id = UniqueId([0; 128]);
        // SAFETY: NCCL fills in that many bytes.
        let code = unsafe { (self.get_unique_id)(&mut id) };
        match code {
            Code::SUCCESS => Ok(id),
            code => Err(self.error("NCCL cannot make a unique id", code)),
        }
    }

    /// Creates an error from NCCL's description of a result and of its last error.
    pub(super) fn error(&self, what: impl Into<String>, code: Code) -> Error {
        // SAFETY: both return a static text or null; the handle is not used.
        let (name, detail) = unsafe {
            (owned_text((self.error_string)(code)), owned_text((self.last_error)(std::ptr::null_mut())))
        };
        let detail = if detail.is_empty() { detail } else { format!(": {detail}") };
        Error::system(what, format!("{name}{detail}"))
    }
}

/// # Safety
///
/// `text` ends with a zero byte, or is null.
unsafe fn owned_text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().trim().into()
}

fn version_text(version: c_int) -> String {
    format!("{}.{}.{}", version / 10_000, version / 100 % 100, version % 100)
}

fn load(named: Option<String>) -> Result<Library, Error> {
    // The first name belongs to the runtime package, the second to the development package.
    let names = named.map_or_else(|| vec!["libnccl.so.2".into(), "libnccl.so".into()], |name| vec![name]);
    let library = open(&names).map_err(|cause| missing(&names, &cause))?;
    // SAFETY: the library is NCCL, by its name or by the user's choice.
    let bound = unsafe { Library::bind(&library) };
    let mut bound =
        bound.map_err(|cause| missing(&names, &format!("it is not NCCL 2.14 or newer ({cause})")))?;
    std::mem::forget(library);
    // SAFETY: NCCL fills in the number.
    let code = unsafe { (bound.get_version)(&mut bound.version) };
    if code != Code::SUCCESS || bound.version < OLDEST {
        let found = version_text(bound.version);
        return Err(missing(&names, &format!("it is version {found}; 2.14 or newer is needed")));
    }
    log::debug!("NCCL {} loaded", bound.version());
    Ok(bound)
}

fn missing(names: &[String], cause: &dyn Display) -> Error {
    let remedy = "install NCCL (Debian's and NVIDIA's libnccl2, PyPI's nvidia-nccl-cu12) where the linker finds it \
                  (LD_LIBRARY_PATH), or name the file";
    Error::system(format!("cannot load {}", names.join(" or ")), format!("{cause}; {remedy}: {LIBRARY}=PATH"))
}

/// Loads the first of these libraries that can be loaded; if none can, returns the error of the first.
pub(super) fn open(names: &[String]) -> Result<libloading::Library, String> {
    let mut first = None;
    for name in names {
        // SAFETY: these are the libraries of CUDA and NCCL, which do nothing dangerous when they are loaded.
        match unsafe { libloading::Library::new(name) } {
            Ok(library) => return Ok(library),
            Err(cause) => first = first.or(Some(innermost(&cause))),
        }
    }
    Err(first.unwrap_or_else(|| "no name is given".into()))
}

/// Returns the linker's message, which the error keeps as its source.
fn innermost(cause: &libloading::Error) -> String {
    std::error::Error::source(cause).map_or_else(|| cause.to_string(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_named() {
        let error = load(Some("/nowhere/libnccl.so.2".into())).err().unwrap().to_string();
        assert!(error.starts_with("cannot load /nowhere/libnccl.so.2: "), "{error}");
        assert!(error.contains("libnccl2") && error.contains("KOLO_NCCL_LIBRARY=PATH"), "{error}");
    }

    #[test]
    fn another_library_is_not_taken_for_nccl() {
        let error = load(Some("libc.so.6".into())).err().unwrap().to_string();
        assert!(error.contains("it is not NCCL 2.14 or newer"), "{error}");
    }

    #[test]
    fn the_config_is_that_of_the_header() {
        assert_eq!((size_of::<Config>(), size_of::<UniqueId>()), (24, 128));
        assert_eq!(version_text(22_703), "2.27.3");
    }

    /// The real library, if it is installed, must have every function. Needs no GPU.
    #[test]
    fn the_real_library_has_every_function() {
        match Library::get() {
            Ok(library) => {
                let id = library.unique_id().expect("an id needs no GPU");
                assert_ne!(id.0, [0; 128]);
            }
            Err(error) => eprintln!("skipped: {error}"),
        }
    }
}
