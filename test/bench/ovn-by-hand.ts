import { LISTENERS, MEMBERS, type OvnWorld } from './ovn-world.js'

/** So many load balancers are written by hand. */
const BALANCERS = Number(process.env.BENCH_BY_HAND ?? 20)
const REPETITIONS = 20
const [SWITCH, ROUTER] = ['by-hand', 'by-hand-router']

export type ByHand = {
  /** Load balancers that were written. */
  balancers: number
  /** Milliseconds for all of them: a process for each command, and one for all. */
  commands: number
  batch: number
  /** Milliseconds of each change of one, from the command until it is installed: by a new process each. */
  changes: number[]
}

/** Writes rows as Krater does, with `ovn-nbctl`, and removes them again. */
export async function writeByHand({ nbctl, stages }: OvnWorld): Promise<ByHand> {
  const milliseconds = async (act: () => Promise<unknown>) => {
    const began = performance.now()
    await act()
    return performance.now() - began
  }
  const numbers = Array.from({ length: BALANCERS }, (_, n) => n)
  const clear = async () => {
    const balancers = numbers.flatMap(n => listeners().flatMap(at => ['--', '--if-exists', 'lb-del', nameOf(n, at)]))
    await nbctl('--if-exists', 'ls-del', SWITCH, '--', '--if-exists', 'lr-del', ROUTER, ...balancers)
    await nbctl('--wait=hv', 'sync')
  }
  await clear()
  const holders = async () => {
    await nbctl('ls-add', SWITCH, '--', 'lr-add', ROUTER)
    await nbctl('--wait=hv', 'sync')
    await stages.rest()
  }
  await holders()
  const commands = await milliseconds(async () => {
    for (const n of numbers) for (const command of commandsOf(n)) await nbctl(...command)
  })
  await clear()
  await holders()
  const all = numbers.flatMap(commandsOf).flatMap(command => ['--', ...command])
  const batch = await milliseconds(() => nbctl(...all.slice(1)))
  await nbctl('--wait=hv', 'sync')
  const changes: number[] = []
  for (let round = 0; round < REPETITIONS; round++) {
    const members = addressesOf(0).slice(round % 2)
    const vips = `vips:"${vipOf(0)}:8000"="${members.join(',')}"`
    changes.push(await milliseconds(() => nbctl('--wait=hv', 'set', 'Load_Balancer', nameOf(0, 0), vips)))
  }
  await clear()
  return { balancers: BALANCERS, commands, batch, changes }
}

const listeners = () => Array.from({ length: LISTENERS }, (_, at) => at)
const nameOf = (n: number, at: number) => `by-hand-${n}-${at}`
const vipOf = (n: number) => `10.99.${Math.floor(n / 200)}.${1 + (n % 200)}`
const addressesOf = (n: number) =>
  Array.from({ length: MEMBERS }, (_, at) => `10.99.${100 + Math.floor(n / 200)}.${1 + at}:8000`)

/** A leg of the router that answers for the VIP, and the listeners. */
function commandsOf(n: number): string[][] {
  const leg = `by-hand-leg-${n}`
  const mac = `0a:00:00:99:${[n >> 8, n & 255].map(byte => byte.toString(16).padStart(2, '0')).join(':')}`
  return [
    ['lrp-add', ROUTER, leg, mac, `${vipOf(n)}/32`],
    ['lsp-add', SWITCH, `${leg}-switch`],
    ['lsp-set-type', `${leg}-switch`, 'router'],
    ['lsp-set-addresses', `${leg}-switch`, 'router'],
    ['lsp-set-options', `${leg}-switch`, `router-port=${leg}`],
    ...listeners().flatMap(at => [
      ['lb-add', nameOf(n, at), `${vipOf(n)}:${8000 + at}`, addressesOf(n).join(','), 'tcp'],
      ['ls-lb-add', SWITCH, nameOf(n, at)],
    ]),
  ]
}
