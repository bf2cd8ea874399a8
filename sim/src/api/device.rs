//! Devices: how many, what they can do, their names, their pools.
use crate::attribute;
use crate::call::{Entry, In, Out, call};
use crate::codes::{self, Code};

#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGetCount(count: Out<i32>) -> u32 {
    static E: Entry = Entry::new("cuDeviceGetCount");
    call(&E, [count.address()], |session| count.put(session.devices.len() as i32))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGet(device: Out<i32>, ordinal: i32) -> u32 {
    static E: Entry = Entry::new("cuDeviceGet");
    call(&E, [device.address(), ordinal as u64], |session| {
        session.device(ordinal)?;
        device.put(ordinal)
    })
}

/// Writes a terminated text into a buffer of `len` bytes, cut where it is too long.
fn put_text(buffer: Out<u8>, len: i32, text: &str) -> Result<(), Code> {
    let room = usize::try_from(len).ok().filter(|len| *len > 0).ok_or(codes::INVALID_VALUE)?;
    let bytes = text.bytes().take(room - 1).chain([0]);
    for (i, byte) in bytes.enumerate() {
        buffer.put_at(i, byte)?;
    }
    Ok(())
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGetName(name: Out<u8>, len: i32, device: i32) -> u32 {
    static E: Entry = Entry::new("cuDeviceGetName");
    call(&E, [name.address(), len as u64, device as u64], |session| {
        let text = session.device(device)?.gpu.name.clone();
        put_text(name, len, &text)
    })
}

fn pci_ids(device: i32) -> (i32, i32, i32) {
    (0, 0x10 + 8 * device, 0)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGetPCIBusId(text: Out<u8>, len: i32, device: i32) -> u32 {
    static E: Entry = Entry::new("cuDeviceGetPCIBusId");
    call(&E, [text.address(), len as u64, device as u64], |session| {
        session.device(device)?;
        let (domain, bus, slot) = pci_ids(device);
        put_text(text, len, &format!("{domain:08x}:{bus:02x}:{slot:02x}.0"))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGetByPCIBusId(device: Out<i32>, text: In<u8>) -> u32 {
    static E: Entry = Entry::new("cuDeviceGetByPCIBusId");
    call(&E, [device.address(), text.address()], |session| {
        let text = text.text()?;
        let wanted = text.trim().to_ascii_lowercase();
        for ordinal in 0..session.devices.len() as i32 {
            let (domain, bus, slot) = pci_ids(ordinal);
            let forms = [
                format!("{domain:08x}:{bus:02x}:{slot:02x}.0"),
                format!("{domain:04x}:{bus:02x}:{slot:02x}.0"),
                format!("{domain:04x}:{bus:02x}:{slot:02x}"),
                format!("{bus:02x}:{slot:02x}"),
            ];
            if forms.contains(&wanted) {
                return device.put(ordinal);
            }
        }
        Err(codes::INVALID_DEVICE)
    })
}

fn uuid(entry: &'static Entry, uuid: Out<[u8; 16]>, device: i32) -> Code {
    call(entry, [uuid.address(), device as u64], |session| {
        session.device(device)?;
        let mut bytes = *b"warpsim\0\0\0\0\0\0\0\0\0";
        bytes[12..].copy_from_slice(&(device as u32 + 1).to_be_bytes());
        uuid.put(bytes)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGetUuid(out: Out<[u8; 16]>, device: i32) -> u32 {
    static E: Entry = Entry::new("cuDeviceGetUuid");
    uuid(&E, out, device)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGetUuid_v2(out: Out<[u8; 16]>, device: i32) -> u32 {
    static E: Entry = Entry::new("cuDeviceGetUuid_v2");
    uuid(&E, out, device)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceTotalMem_v2(bytes: Out<usize>, device: i32) -> u32 {
    static E: Entry = Entry::new("cuDeviceTotalMem_v2");
    call(&E, [bytes.address(), device as u64], |session| {
        let memory = session.device(device)?.gpu.memory;
        bytes.put(memory as usize)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGetAttribute(value: Out<i32>, which: i32, device: i32) -> u32 {
    static E: Entry = Entry::new("cuDeviceGetAttribute");
    call(&E, [value.address(), which as u64, device as u64], |session| {
        value.check()?;
        let gpu = &session.device(device)?.gpu;
        if which < 1 || which as usize >= attribute::COUNT {
            return Err(codes::INVALID_VALUE);
        }
        let (domain, bus, slot) = pci_ids(device);
        value.put(match which {
            attribute::PCI_DOMAIN_ID => domain,
            attribute::PCI_BUS_ID => bus,
            attribute::PCI_DEVICE_ID => slot,
            _ => gpu.attribute(which),
        })
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGetDefaultMemPool(pool: Out<u64>, device: i32) -> u32 {
    static E: Entry = Entry::new("cuDeviceGetDefaultMemPool");
    call(&E, [pool.address(), device as u64], |session| {
        pool.check()?;
        let device = session.ordinal(device)?;
        session.has_pools(device)?;
        pool.put(session.devices[device].default_pool)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGetMemPool(pool: Out<u64>, device: i32) -> u32 {
    static E: Entry = Entry::new("cuDeviceGetMemPool");
    call(&E, [pool.address(), device as u64], |session| {
        pool.check()?;
        let device = session.ordinal(device)?;
        session.has_pools(device)?;
        pool.put(session.devices[device].current_pool)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceSetMemPool(device: i32, pool: u64) -> u32 {
    static E: Entry = Entry::guarded("cuDeviceSetMemPool");
    call(&E, [device as u64, pool], |session| {
        let device = session.ordinal(device)?;
        session.has_pools(device)?;
        let chosen = session.pool(pool)?;
        if chosen.device != device || !chosen.on_device() || chosen.destroyed {
            return Err(codes::INVALID_VALUE);
        }
        session.devices[device].current_pool = pool;
        Ok(())
    })
}
