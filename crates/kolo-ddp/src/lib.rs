//! kolo-ddp
