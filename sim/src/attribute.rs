//! Device attributes by name and number, with the values an H200 gave (those not asked there are plausible).

pub const MANAGED_MEMORY: i32 = 83;
pub const CONCURRENT_MANAGED_ACCESS: i32 = 89;
pub const HOST_POINTER_FOR_REGISTERED: i32 = 91;
pub const HOST_REGISTER: i32 = 99;
pub const VMM: i32 = 102;
pub const PAGEABLE_MEMORY_ACCESS: i32 = 88;
pub const PCI_BUS_ID: i32 = 33;
pub const PCI_DEVICE_ID: i32 = 34;
pub const PCI_DOMAIN_ID: i32 = 50;
pub const MEMORY_POOLS: i32 = 115;
pub const MAX_BLOCK_X: i32 = 2;
pub const MAX_GRID_X: i32 = 5;
pub const SHARED_OF_MULTIPROCESSOR: i32 = 81;
pub const MULTIPROCESSORS: i32 = 16;
pub const CAPABILITY_MAJOR: i32 = 75;
pub const CAPABILITY_MINOR: i32 = 76;
pub const SHARED_OPT_IN: i32 = 97;
pub const THREADS_OF_MULTIPROCESSOR: i32 = 39;
pub const BLOCKS_OF_MULTIPROCESSOR: i32 = 106;
pub const POOL_HANDLE_TYPES: i32 = 119;
pub const DMA_BUF: i32 = 124;
pub const IPC_EVENT: i32 = 125;
pub const HOST_POOLS: i32 = 144;
pub const HOST_NUMA_POOLS: i32 = 142;

/// One past the largest attribute number.
pub const COUNT: usize = 148;

/// Name, number, value on an H200.
pub static TABLE: &[(&str, i32, i32)] = &[
    ("max_threads_per_block", 1, 1024),
    ("max_block_dim_x", 2, 1024),
    ("max_block_dim_y", 3, 1024),
    ("max_block_dim_z", 4, 64),
    ("max_grid_dim_x", 5, 2147483647),
    ("max_grid_dim_y", 6, 65535),
    ("max_grid_dim_z", 7, 65535),
    ("max_shared_memory_per_block", 8, 49152),
    ("total_constant_memory", 9, 65536),
    ("warp_size", 10, 32),
    ("max_pitch", 11, 2147483647),
    ("max_registers_per_block", 12, 65536),
    ("clock_rate", 13, 1980000),
    ("texture_alignment", 14, 512),
    ("gpu_overlap", 15, 1),
    ("multiprocessor_count", 16, 132),
    ("kernel_exec_timeout", 17, 0),
    ("integrated", 18, 0),
    ("can_map_host_memory", 19, 1),
    ("compute_mode", 20, 0),
    ("maximum_texture1d_width", 21, 65536),
    ("maximum_texture2d_width", 22, 65536),
    ("maximum_texture2d_height", 23, 65536),
    ("maximum_texture3d_width", 24, 65536),
    ("maximum_texture3d_height", 25, 65536),
    ("maximum_texture3d_depth", 26, 65536),
    ("maximum_texture2d_layered_width", 27, 65536),
    ("maximum_texture2d_layered_height", 28, 65536),
    ("maximum_texture2d_layered_layers", 29, 65536),
    ("surface_alignment", 30, 512),
    ("concurrent_kernels", 31, 1),
    ("ecc_enabled", 32, 1),
    ("pci_bus_id", 33, 0),
    ("pci_device_id", 34, 0),
    ("tcc_driver", 35, 0),
    ("memory_clock_rate", 36, 3201000),
    ("global_memory_bus_width", 37, 6144),
    ("l2_cache_size", 38, 62914560),
    ("max_threads_per_multiprocessor", 39, 2048),
    ("async_engine_count", 40, 3),
    ("unified_addressing", 41, 1),
    ("maximum_texture1d_layered_width", 42, 65536),
    ("maximum_texture1d_layered_layers", 43, 65536),
    ("can_tex2d_gather", 44, 0),
    ("maximum_texture2d_gather_width", 45, 65536),
    ("maximum_texture2d_gather_height", 46, 65536),
    ("maximum_texture3d_width_alternate", 47, 65536),
    ("maximum_texture3d_height_alternate", 48, 65536),
    ("maximum_texture3d_depth_alternate", 49, 65536),
    ("pci_domain_id", 50, 0),
    ("texture_pitch_alignment", 51, 32),
    ("maximum_texturecubemap_width", 52, 65536),
    ("maximum_texturecubemap_layered_width", 53, 65536),
    ("maximum_texturecubemap_layered_layers", 54, 65536),
    ("maximum_surface1d_width", 55, 65536),
    ("maximum_surface2d_width", 56, 65536),
    ("maximum_surface2d_height", 57, 65536),
    ("maximum_surface3d_width", 58, 65536),
    ("maximum_surface3d_height", 59, 65536),
    ("maximum_surface3d_depth", 60, 65536),
    ("maximum_surface1d_layered_width", 61, 65536),
    ("maximum_surface1d_layered_layers", 62, 65536),
    ("maximum_surface2d_layered_width", 63, 65536),
    ("maximum_surface2d_layered_height", 64, 65536),
    ("maximum_surface2d_layered_layers", 65, 65536),
    ("maximum_surfacecubemap_width", 66, 65536),
    ("maximum_surfacecubemap_layered_width", 67, 65536),
    ("maximum_surfacecubemap_layered_layers", 68, 65536),
    ("maximum_texture1d_linear_width", 69, 65536),
    ("maximum_texture2d_linear_width", 70, 65536),
    ("maximum_texture2d_linear_height", 71, 65536),
    ("maximum_texture2d_linear_pitch", 72, 65536),
    ("maximum_texture2d_mipmapped_width", 73, 65536),
    ("maximum_texture2d_mipmapped_height", 74, 65536),
    ("compute_capability_major", 75, 9),
    ("compute_capability_minor", 76, 0),
    ("maximum_texture1d_mipmapped_width", 77, 65536),
    ("stream_priorities_supported", 78, 1),
    ("global_l1_cache_supported", 79, 1),
    ("local_l1_cache_supported", 80, 1),
    ("max_shared_memory_per_multiprocessor", 81, 233472),
    ("max_registers_per_multiprocessor", 82, 65536),
    ("managed_memory", 83, 1),
    ("multi_gpu_board", 84, 0),
    ("multi_gpu_board_group_id", 85, 0),
    ("host_native_atomic_supported", 86, 0),
    ("single_to_double_precision_perf_ratio", 87, 2),
    ("pageable_memory_access", 88, 0),
    ("concurrent_managed_access", 89, 1),
    ("compute_preemption_supported", 90, 1),
    ("can_use_host_pointer_for_registered_mem", 91, 1),
    ("can_use_stream_mem_ops_v1", 92, 0),
    ("can_use_64_bit_stream_mem_ops_v1", 93, 0),
    ("can_use_stream_wait_value_nor_v1", 94, 0),
    ("cooperative_launch", 95, 1),
    ("cooperative_multi_device_launch", 96, 0),
    ("max_shared_memory_per_block_optin", 97, 232448),
    ("can_flush_remote_writes", 98, 1),
    ("host_register_supported", 99, 1),
    ("pageable_memory_access_uses_host_page_tables", 100, 0),
    ("direct_managed_mem_access_from_host", 101, 0),
    ("virtual_memory_management_supported", 102, 1),
    ("handle_type_posix_file_descriptor_supported", 103, 1),
    ("handle_type_win32_handle_supported", 104, 0),
    ("handle_type_win32_kmt_handle_supported", 105, 0),
    ("max_blocks_per_multiprocessor", 106, 32),
    ("generic_compression_supported", 107, 1),
    ("max_persisting_l2_cache_size", 108, 0),
    ("max_access_policy_window_size", 109, 0),
    ("gpu_direct_rdma_with_cuda_vmm_supported", 110, 1),
    ("reserved_shared_memory_per_block", 111, 1024),
    ("sparse_cuda_array_supported", 112, 1),
    ("read_only_host_register_supported", 113, 1),
    ("timeline_semaphore_interop_supported", 114, 1),
    ("memory_pools_supported", 115, 1),
    ("gpu_direct_rdma_supported", 116, 1),
    ("gpu_direct_rdma_flush_writes_options", 117, 0),
    ("gpu_direct_rdma_writes_ordering", 118, 0),
    ("mempool_supported_handle_types", 119, 9),
    ("cluster_launch", 120, 1),
    ("deferred_mapping_cuda_array_supported", 121, 0),
    ("can_use_64_bit_stream_mem_ops", 122, 0),
    ("can_use_stream_wait_value_nor", 123, 0),
    ("dma_buf_supported", 124, 1),
    ("ipc_event_supported", 125, 1),
    ("mem_sync_domain_count", 126, 4),
    ("tensor_map_access_supported", 127, 1),
    ("handle_type_fabric_supported", 128, 1),
    ("unified_function_pointers", 129, 1),
    ("numa_config", 130, 0),
    ("numa_id", 131, -1),
    ("multicast_supported", 132, 0),
    ("mps_enabled", 133, 0),
    ("host_numa_id", 134, 0),
    ("d3d12_cig_supported", 135, 0),
    ("mem_decompress_algorithm_mask", 136, 0),
    ("mem_decompress_maximum_length", 137, 0),
    ("vulkan_cig_supported", 138, 0),
    ("gpu_pci_device_id", 139, 0),
    ("gpu_pci_subsystem_id", 140, 0),
    ("host_numa_virtual_memory_management_supported", 141, 1),
    ("host_numa_memory_pools_supported", 142, 1),
    ("host_numa_multinode_ipc_supported", 143, 0),
    ("host_memory_pools_supported", 144, 1),
    ("host_virtual_memory_management_supported", 145, 1),
    ("host_alloc_dma_buf_supported", 146, 0),
    ("only_partial_host_native_atomic_supported", 147, 0),
];

/// Short names for the attributes that tests change most.
static SHORT: &[(&str, &str)] = &[
    ("pools", "memory_pools_supported"),
    ("handle_types", "mempool_supported_handle_types"),
    ("managed", "managed_memory"),
    ("concurrent", "concurrent_managed_access"),
    ("pageable", "pageable_memory_access"),
    ("host_page_tables", "pageable_memory_access_uses_host_page_tables"),
    ("host_direct", "direct_managed_mem_access_from_host"),
    ("host_atomics", "host_native_atomic_supported"),
    ("uva", "unified_addressing"),
    ("vmm", "virtual_memory_management_supported"),
    ("registered_host_pointer", "can_use_host_pointer_for_registered_mem"),
    ("ipc", "ipc_event_supported"),
    ("dma_buf", "dma_buf_supported"),
];

/// The number of an attribute from its short name, its driver name in lower case, or its number.
pub fn number(name: &str) -> Option<i32> {
    if let Ok(value) = name.parse::<i32>() {
        return (0..COUNT as i32).contains(&value).then_some(value);
    }
    let name = SHORT.iter().find(|row| row.0 == name).map_or(name, |row| row.1);
    TABLE.iter().find(|row| row.0 == name).map(|row| row.1)
}

/// The values of an H200, indexed by attribute number.
pub fn h200() -> [i32; COUNT] {
    let mut values = [0; COUNT];
    for &(_, number, value) in TABLE {
        values[number as usize] = value;
    }
    values
}
