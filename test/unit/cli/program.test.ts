import t, { type Test } from 'tap'
import { commands } from '../../../controller/cli/commands.js'
import { listenersOf } from '../../../controller/cli/host/checks.js'
import { runCommandLine } from '../../../controller/cli/program.js'
import { parseConfiguration } from '../../../controller/config/load.js'

/** Runs a command line and captures its output. */
async function outputOf(t: Test, ...words: string[]): Promise<string> {
  const written = t.capture(process.stdout, 'write', () => true)
  const status = await runCommandLine(words)
  written.restore()
  t.equal(status, 0, words.join(' '))
  return written()
    .map(({ args }) => String(args[0]))
    .join('')
}

t.test('a state directory named like a command does not change the help', async t => {
  const help = await outputOf(t, '--help')
  t.match(help, /demo \[options\] +create a load balancer/)
  t.match(help, /down \[options\]/)
  t.equal(await outputOf(t, '--state-dir', 'demo', '--help'), help)
  const groupHelp = await outputOf(t, 'amphora', '--help')
  t.match(groupHelp, 'show <id>')
  t.equal(await outputOf(t, '--state-dir', 'list', 'amphora', '--help'), groupHelp)
  t.equal(await outputOf(t, 'help', 'amphora'), groupHelp)
  t.equal(await outputOf(t, 'amphora', 'help'), groupHelp)
  t.match(await outputOf(t, 'help', 'down'), '--all')
})

t.test('the example for a second instance moves the port of each API', async t => {
  const [, example = ''] = /^ {2}(KRATER_STATE_DIR=.*?npx krater up)$/ms.exec(await outputOf(t, '--help')) ?? []
  const given = Object.fromEntries([...example.matchAll(/(KRATER_\w+)=(\S+)/g)].map(([, name, value]) => [name, value]))
  const [first, second] = [{}, given].map(environment => listenersOf(parseConfiguration('', environment), null))
  const ports = [...(first ?? []), ...(second ?? [])].map(({ port }) => port)
  t.equal(ports.length, 8)
  t.equal(new Set(ports).size, 8, example)
})

t.test('the version is printed without loading a command', async t => {
  const loaded = commands.flatMap(entry => ('load' in entry ? [t.capture(entry, 'load', entry.load)] : []))
  const count = () => loaded.flatMap(calls => calls()).length
  t.match(await outputOf(t, '--version'), /^\d+\.\d+\.\d+\n$/)
  t.equal(count(), 0)
  await outputOf(t, '--help')
  t.equal(count(), loaded.length, 'help loads every command')
})

t.test('options behind the first argument of a command that runs another belong to that one', async t => {
  const { command } = await import('../../../controller/cli/commands/network/exec.js')
  const runs = t.capture(command, 'run', async () => 0)
  const given = async (...words: string[]) => {
    t.equal(await runCommandLine(words), 0, words.join(' '))
    const [call] = runs()
    return call?.args.slice(0, 2)
  }
  const expected = ['/tmp/exec', { name: 'app', command: ['curl', '-s', '--help', '--state-dir', 'x'] }]
  const words = ['network', 'exec', 'app', 'curl', '-s', '--help', '--state-dir', 'x']
  t.same(await given('--state-dir', '/tmp/exec', ...words), expected)
  t.same(await given('network', '--state-dir', '/tmp/exec', 'exec', 'app', '--', ...words.slice(3)), expected)
  t.match(await outputOf(t, 'network', 'exec', '--help'), '<command...>')
})
