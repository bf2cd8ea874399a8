//! Copies that the driver makes by itself: lines, rows, and planes of rows.

use super::{Driver, Failure, RawContext, RawStream};
use cudarc::driver::sys::{CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUmemorytype as Type, CUmemorytype_enum};
use std::ffi::c_void;

/// One end of a copy of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pitch {
    pub address: u64,
    /// Bytes from each row to the next.
    pub pitch: u64,
    /// Rows from each plane to the next.
    pub height: u64,
}

/// Planes of rows, as far apart at each end as that has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pitched {
    pub dest: Pitch,
    pub src: Pitch,
    /// Bytes of a row.
    pub width: u64,
    /// Rows of a plane.
    pub height: u64,
    /// Planes.
    pub depth: u64,
}

/// How the driver is to find the memory of an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// By the address alone.
    Any,
    /// It is the program's own, page-locked or not.
    Host,
    /// It is memory of a device's.
    Device,
}

impl Place {
    fn kind(self) -> Type {
        match self {
            Place::Any => CUmemorytype_enum::CU_MEMORYTYPE_UNIFIED,
            Place::Host => CUmemorytype_enum::CU_MEMORYTYPE_HOST,
            Place::Device => CUmemorytype_enum::CU_MEMORYTYPE_DEVICE,
        }
    }

    /// The address where the driver looks for it: as one of the host, and as any.
    fn addresses(self, address: u64) -> (*mut c_void, u64) {
        match self {
            Place::Any | Place::Device => (std::ptr::null_mut(), address),
            Place::Host => (std::ptr::with_exposed_provenance_mut(address as usize), 0),
        }
    }
}

impl Driver {
    /// Copies within one device, or between a device and the host; the driver tells by the addresses.
    pub fn copy(&self, dest: u64, src: u64, size: usize, stream: RawStream) -> Result<(), Failure> {
        // SAFETY: the caller checked both ranges as far as they are known and pins the stream.
        unsafe { self.table.cuMemcpyAsync(dest, src, size, stream.0.cast()) }
    }

    /// Copies between two devices, staged by the driver where there is no access.
    pub fn copy_peer(
        &self,
        dest: (u64, RawContext),
        src: (u64, RawContext),
        size: usize,
        stream: RawStream,
    ) -> Result<(), Failure> {
        // SAFETY: as `copy`; the contexts are held by their devices.
        unsafe {
            self.table.cuMemcpyPeerAsync(
                dest.0,
                dest.1.0.cast(),
                src.0,
                src.1.0.cast(),
                size,
                stream.0.cast(),
            )
        }
    }

    /// Copies rows within one device, or between a device and the host.
    pub fn copy_pitched(
        &self,
        rows: &Pitched,
        dest: Place,
        src: Place,
        stream: RawStream,
    ) -> Result<(), Failure> {
        if rows.depth > 1 {
            return self.copy_planes(rows, dest, src, stream);
        }
        let ((to_host, to), (from_host, from)) =
            (dest.addresses(rows.dest.address), src.addresses(rows.src.address));
        let asked = CUDA_MEMCPY2D {
            srcXInBytes: 0,
            srcY: 0,
            srcMemoryType: src.kind(),
            srcHost: from_host,
            srcDevice: from,
            srcArray: std::ptr::null_mut(),
            srcPitch: rows.src.pitch as usize,
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: dest.kind(),
            dstHost: to_host,
            dstDevice: to,
            dstArray: std::ptr::null_mut(),
            dstPitch: rows.dest.pitch as usize,
            WidthInBytes: rows.width as usize,
            Height: rows.height as usize,
        };
        // SAFETY: as `copy`; the driver reads the description during the call.
        unsafe { self.table.cuMemcpy2DAsync_v2(&asked, stream.0.cast()) }
    }

    fn copy_planes(&self, rows: &Pitched, dest: Place, src: Place, stream: RawStream) -> Result<(), Failure> {
        let asked = planes(rows, dest, src);
        // SAFETY: as `copy_pitched`.
        unsafe { self.table.cuMemcpy3DAsync_v2(&asked, stream.0.cast()) }
    }
}

fn planes(rows: &Pitched, dest: Place, src: Place) -> CUDA_MEMCPY3D {
    let ((to_host, to), (from_host, from)) =
        (dest.addresses(rows.dest.address), src.addresses(rows.src.address));
    CUDA_MEMCPY3D {
        srcXInBytes: 0,
        srcY: 0,
        srcZ: 0,
        srcLOD: 0,
        srcMemoryType: src.kind(),
        srcHost: from_host,
        srcDevice: from,
        srcArray: std::ptr::null_mut(),
        reserved0: std::ptr::null_mut(),
        srcPitch: rows.src.pitch as usize,
        srcHeight: rows.src.height as usize,
        dstXInBytes: 0,
        dstY: 0,
        dstZ: 0,
        dstLOD: 0,
        dstMemoryType: dest.kind(),
        dstHost: to_host,
        dstDevice: to,
        dstArray: std::ptr::null_mut(),
        reserved1: std::ptr::null_mut(),
        dstPitch: rows.dest.pitch as usize,
        dstHeight: rows.dest.height as usize,
        WidthInBytes: rows.width as usize,
        Height: rows.height as usize,
        Depth: rows.depth as usize,
    }
}
