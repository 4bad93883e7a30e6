/** With the device isa-debug-exit at this port, QEMU exits with twice the word, and one. */
export const EXIT_PORT = 0xf4
const EXIT_WORD = 0x2a
export const PROOF_STATUS = EXIT_WORD * 2 + 1

const SIZE = 64 * 1024

const PROGRAM = [
  // 16 bits: into protected mode, with the table of segments at the end.
  'fa', // cli
  '2e660f0116f000', // lgdtl %cs:(gdtr - start)
  '0f20c0', // mov %cr0, %eax
  '0c01', // or $1, %al
  '0f22c0', // mov %eax, %cr0
  '66ea1800ffff0800', // ljmpl $0x08, $(0xffff0000 + protected - start)
  // 32 bits: flat segments.
  '66b81000', // mov $0x10, %ax
  '8ed8', // mov %ax, %ds
  '8ec0', // mov %ax, %es
  '8ed0', // mov %ax, %ss
  'bc00800000', // mov $0x8000, %esp
  // Page tables: large pages that map the first GiB, and the last one with this firmware, onto themselves.
  '31c0', // xor %eax, %eax
  'bf00100000', // mov $0x1000, %edi
  'b900100000', // mov $0x1000, %ecx
  'f3ab', // rep stosl
  'c7050010000007200000', // movl $0x2007, 0x1000
  'c7050020000007300000', // movl $0x3007, 0x2000
  'c7051820000007400000', // movl $0x4007, 0x2018
  'bf00300000', // movl $0x3000, %edi
  'b887000000', // mov $0x87, %eax
  'b900020000', // mov $512, %ecx
  '8907', // 1: mov %eax, (%edi)
  '0500002000', // add $0x200000, %eax
  '83c708', // add $8, %edi
  '49', // dec %ecx
  '75f3', // jnz 1b
  'bf00400000', // movl $0x4000, %edi
  'b8870000c0', // mov $0xc0000087, %eax
  'b900020000', // mov $512, %ecx
  '8907', // 1: mov %eax, (%edi)
  '0500002000', // add $0x200000, %eax
  '83c708', // add $8, %edi
  '49', // dec %ecx
  '75f3', // jnz 1b
  // On with long mode and paging.
  '0f20e0', // mov %cr4, %eax
  '83c820', // or $0x20, %eax
  '0f22e0', // mov %eax, %cr4
  'b800100000', // mov $0x1000, %eax
  '0f22d8', // mov %eax, %cr3
  'b9800000c0', // mov $0xc0000080, %ecx
  '0f32', // rdmsr
  '0d00010000', // or $0x100, %eax
  '0f30', // wrmsr
  '0f20c0', // mov %cr0, %eax
  '0d00000080', // or $0x80000000, %eax
  '0f22c0', // mov %eax, %cr0
  'eabc00ffff1800', // ljmpl $0x18, $(0xffff0000 + long - start)
  // 64 bits: some work, then the proof.
  '48c7c140420f00', // mov $1000000, %rcx
  '48ffc9', // 1: dec %rcx
  '75fb', // jnz 1b
  'b02a', // mov $0x2a, %al
  'e6f4', // out %al, $0xf4
  'f4', // 2: hlt
  'ebfd', // jmp 2b
  '90', // padding
  // Segments: none, 32-bit code, data, 64-bit code.
  '0000000000000000', // .quad 0
  'ffff0000009acf00', // .quad 0x00cf9a000000ffff
  'ffff00000092cf00', // .quad 0x00cf92000000ffff
  'ffff0000009aaf00', // .quad 0x00af9a000000ffff
  '1f00', // .word gdtr - gdt - 1
  'd000ffff', // .long 0xffff0000 + gdt - start
].join('')

/** The processor starts 16 bytes before the end, and jumps to the beginning. */
const START = Buffer.of(0xe9, 0x0d, 0x00)

/**
 * The firmware of a machine that does what kernels do first (protected mode, page tables, 64 bits), works a moment, and
 * ends with EXIT_WORD. There are hosts whose KVM runs a machine in real mode and hangs later.
 */
export function proofFirmware(): Buffer {
  const firmware = Buffer.alloc(SIZE)
  Buffer.from(PROGRAM, 'hex').copy(firmware)
  START.copy(firmware, SIZE - 16)
  return firmware
}
