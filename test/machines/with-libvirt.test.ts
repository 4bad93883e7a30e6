import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync, readFileSync, readlinkSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import t from 'tap'

const root = join(import.meta.dirname, '../..')
const folder = t.testdir({ world: {}, other: {} })
const state = join(folder, 'world')

type Run = { child: ChildProcess; output: () => string; end: Promise<number | string | null> }

/** Starts a script beside a libvirtd, in a process group of its own, as a terminal does. */
function start(script: string, directory = state): Run {
  const words = ['--state', directory, 'bash', '-c', `set -e\nreadlink /proc/self/ns/pid\n${script}`]
  const child = spawn(join(root, 'scripts/with-libvirt.sh'), words, { cwd: root, detached: true })
  let output = ''
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (piece: string) => {
      output += piece
    })
  t.teardown(() => child.exitCode === null && child.signalCode === null && child.kill('SIGKILL'))
  const end = once(child, 'close').then(([code, signal]: (number | string | null)[]) => code ?? signal ?? null)
  return { child, output: () => output, end }
}

/** Waits until a script has written a line. */
async function says({ child, output }: Run, line: string): Promise<void> {
  while (!output().split('\n').includes(line)) {
    if (child.exitCode !== null) throw new Error(output())
    await Promise.race([once(child, 'exit'), once(child.stdout ?? child, 'data')])
  }
}

/** The processes in the namespace of a run, which is gone with the last of them. */
function processesOf({ output }: Run): string[] {
  const [namespace] = output().split('\n')
  return readdirSync('/proc').filter(name => {
    try {
      return /^\d+$/.test(name) && readlinkSync(`/proc/${name}/ns/pid`) === namespace
    } catch {
      return false
    }
  })
}

/** What a run may leave behind: mounts, libvirt's interfaces and firewall rules. Other tests have others meanwhile. */
const leftovers = () => {
  const rules = execFileSync('nft', ['list', 'ruleset'], { encoding: 'utf8' })
  const links = execFileSync('ip', ['-o', 'link'], { encoding: 'utf8' })
  const mounts = readFileSync('/proc/self/mountinfo', 'utf8')
  return [
    ...mounts.split('\n').filter(line => line.includes(folder)),
    ...links.split('\n').filter(line => /virbr|vnet/.test(line)),
    ...rules.split('\n').filter(line => /libvirt|virbr/i.test(line)),
  ]
}

const NETWORK = `
virsh --quiet net-define /dev/stdin <<'END'
<network><name>lan</name><ip address="192.0.2.1" netmask="255.255.255.0">
  <dhcp><range start="192.0.2.2" end="192.0.2.9"/></dhcp>
</ip></network>
END
virsh --quiet net-start lan
`
const MACHINE = `
virsh --quiet define /dev/stdin <<'END'
<domain type="qemu"><name>bare</name><memory unit="MiB">32</memory><os><type machine="q35">hvm</type></os>
  <devices><interface type="network"><source network="lan"/></interface></devices>
</domain>
END
virsh --quiet start bare
`
/** What runs: libvirtd, QEMU, and dnsmasq with its helper. */
const SHOW = `
virsh --quiet list --name
virsh --quiet net-list --name
virsh --quiet pool-list --name
virsh --quiet dominfo bare | grep State
pgrep --count '^(libvirtd|qemu-system-x86|dnsmasq)'
`

t.test('a libvirtd of its own, with machines and networks, which ends with the command', async t => {
  const first = start(`${NETWORK}${MACHINE}${SHOW}echo ready\nread -r answer || exit 7`)
  await says(first, 'ready')
  t.match(first.output(), /^bare *\n+lan *\n+default *\n+State: +running\n4\n/m)
  t.ok(processesOf(first).length > 3)
  const second = start('echo not refused')
  t.equal(await second.end, 1)
  t.equal(second.output(), `with-libvirt.sh: another run uses ${state}\n`)
  const beside = start('virsh --quiet list --all --name', join(folder, 'other'))
  t.equal(await beside.end, 0, 'with another directory, one runs beside it')
  t.notMatch(beside.output(), /bare/)
  t.strictSame(leftovers(), [])

  first.child.stdin?.end()
  t.equal(await first.end, 7, 'its exit status is that of the command')
  t.strictSame(processesOf(first), [])
  t.strictSame(leftovers(), [])

  const later = start('virsh --quiet list --all\nvirsh --quiet net-list --all')
  t.equal(await later.end, 0)
  t.match(later.output(), /bare +shut off[\s\S]*lan +inactive/, 'a later run finds what it left, switched off')
})

t.test('Ctrl-C is for the command, and an end for all', async t => {
  const answers = start("trap 'virsh --quiet list --all --name; exit 3' INT\necho ready\nsleep 60")
  await says(answers, 'ready')
  process.kill(-(answers.child.pid ?? 0), 'SIGINT')
  t.equal(await answers.end, 3)
  t.match(answers.output(), /^bare/m, 'libvirtd still answers')
  t.strictSame(processesOf(answers), [])

  for (const [signal, status] of [
    ['SIGTERM', 143],
    ['SIGHUP', 129],
    ['SIGKILL', 'SIGKILL'],
  ] as const) {
    const run = start('echo ready\nsleep 60')
    await says(run, 'ready')
    run.child.kill(signal)
    t.equal(await run.end, status, signal)
    for (let tries = 0; processesOf(run).length > 0 && tries < 200; tries++) await delay(50)
    t.strictSame(processesOf(run), [], `${signal} leaves no process`)
  }
})
