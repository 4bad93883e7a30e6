import t from 'tap'
import { EAFNOSUPPORT, ENOSYS, EPERM, EPROTONOSUPPORT, seccompFilter } from '../../../amphora-agent/seccomp/filter.js'
import { seccompLauncher } from '../../../amphora-agent/seccomp/launcher.js'
import { HAPROXY_RULES, MACHINE_RULES, PROBER_RULES } from '../../../amphora-agent/seccomp/rules.js'
import {
  type Architecture,
  numberOf,
  SYSTEM_CALLS,
  type SystemCall,
} from '../../../amphora-agent/seccomp/system-calls.js'

const AUDIT: Record<Architecture, number> = { x64: 0xc000003e, arm64: 0xc00000b7 }
const NEW_USER = 0x10000000
const CHILD_SIGNAL = 17
const [UNIX, INET, INET6, NETLINK, PACKET, VSOCK] = [1, 2, 10, 16, 17, 40]
const [STREAM, DATAGRAM, RAW, NONBLOCK] = [1, 2, 3, 0x800]

/** Interprets a filter as the kernel does. @returns 'allow', 'kill' or an errno */
function verdict(filter: Buffer, architecture: number, number: number, args: number[] = []): string | number {
  const words = new Map([
    [0, number],
    [4, architecture],
    ...args.map((value, index): [number, number] => [16 + 8 * index, value]),
  ])
  let accumulator = 0
  for (let at = 0; ; at += 8) {
    const [yes, no, value] = [filter[at + 2]!, filter[at + 3]!, filter.readUInt32LE(at + 4)]
    const jump = (holds: boolean) => {
      at += 8 * (holds ? yes : no)
    }
    switch (filter.readUInt16LE(at)) {
      case 0x20:
        accumulator = words.get(value) ?? 0
        break
      case 0x54:
        accumulator = (accumulator & value) >>> 0
        break
      case 0x15:
        jump(accumulator === value)
        break
      case 0x25:
        jump(accumulator > value)
        break
      case 0x35:
        jump(accumulator >= value)
        break
      case 0x06:
        if (value === 0x7fff0000) return 'allow'
        return value === 0x80000000 ? 'kill' : value & 0xffff
      default:
        throw new Error(`unknown operation at ${at}`)
    }
  }
}

for (const architecture of ['x64', 'arm64'] as const) {
  const machine = seccompFilter(architecture, MACHINE_RULES)
  const haproxy = seccompFilter(architecture, HAPROXY_RULES)
  const ask = (filter: Buffer, call: SystemCall | number, ...args: number[]) =>
    verdict(filter, AUDIT[architecture], typeof call === 'number' ? call : numberOf(call, architecture)!, args)

  t.test(`the ${architecture} filters allow the required calls and refuse the rest`, async t => {
    for (const call of Object.keys(SYSTEM_CALLS) as SystemCall[]) {
      const number = numberOf(call, architecture)
      if (number === null || call === 'clone3') continue
      const ordinary = call === 'socket' || call === 'socketpair' ? [1, 1, 0] : [0, 0]
      t.equal(ask(machine, number, ...ordinary), 'allow', call)
    }
    const named = new Set((Object.keys(SYSTEM_CALLS) as SystemCall[]).map(call => numberOf(call, architecture)))
    const others = [...Array(453).keys()].filter(number => !named.has(number))
    t.ok(others.length > 100)
    t.same([...new Set(others.map(number => ask(machine, number)))], [EPERM])
    t.equal(ask(machine, 463), ENOSYS, 'a call newer than the filter')
    t.equal(ask(machine, 0x40000000), ENOSYS, 'x32 call numbers')
    t.equal(verdict(machine, 0x40000003, 0), 'kill', 'a 32-bit program')

    t.equal(ask(machine, 'clone', CHILD_SIGNAL), 'allow')
    t.equal(ask(machine, 'clone', NEW_USER | CHILD_SIGNAL), EPERM)
    t.equal(ask(machine, 'clone3'), ENOSYS)
    t.equal(ask(machine, 'ioctl', 0, 0x5413), 'allow')
    t.equal(ask(machine, 'ioctl', 0, 0x5412), EPERM)

    t.equal(ask(machine, 'socket', NETLINK, 3, 0), 'allow')
    t.equal(ask(machine, 'socket', NETLINK, 3, 9), EPROTONOSUPPORT, 'the audit system')
    t.equal(ask(machine, 'socket', PACKET, 3, 0), 'allow')
    t.equal(ask(machine, 'socket', VSOCK, 1, 0), EPROTONOSUPPORT)
    t.equal(ask(haproxy, 'socket', INET, 1, 6), 'allow')
    for (const family of [NETLINK, PACKET, VSOCK]) t.equal(ask(haproxy, 'socket', family, 3, 0), EAFNOSUPPORT)
    t.equal(ask(haproxy, 'memfd_create'), EPERM)
  })

  t.test(`the ${architecture} filter of the prober leaves it TCP, UDP and what it has open`, async t => {
    const prober = seccompFilter(architecture, PROBER_RULES)
    for (const family of [INET, INET6]) {
      t.equal(ask(prober, 'socket', family, STREAM | NONBLOCK, 6), 'allow')
      t.equal(ask(prober, 'socket', family, DATAGRAM | NONBLOCK, 17), 'allow')
      t.equal(ask(prober, 'socket', family, RAW, 132), EPERM)
      t.equal(ask(prober, 'socket', family, DATAGRAM, 1), EPERM)
    }
    for (const family of [UNIX, NETLINK, PACKET]) t.equal(ask(prober, 'socket', family, DATAGRAM, 17), EPERM)
    t.equal(ask(prober, 'setsockopt', 5, 0, 11), 'allow')
    t.equal(ask(prober, 'setsockopt', 5, 0, 3), EPERM, 'IP_HDRINCL, with which a raw socket chooses the sender')
    t.equal(ask(prober, 'setsockopt', 5, 1, 36), EPERM, 'SO_MARK')
    for (const call of ['execve', 'clone', 'fork', 'openat', 'kill', 'bind', 'ioctl', 'fcntl'] as const) {
      if (numberOf(call, architecture) !== null) t.equal(ask(prober, call), EPERM, call)
    }
  })
}

t.test('an unknown architecture gets no filter', async t => {
  t.throws(() => seccompLauncher(HAPROXY_RULES, 'riscv64'), /riscv64/)
})
