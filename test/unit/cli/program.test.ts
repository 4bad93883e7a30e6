import t, { type Test } from 'tap'
import { commands } from '../../../controller/cli/commands.js'
import { runCommandLine } from '../../../controller/cli/program.js'

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
  t.match(help, /demo +create a load balancer/)
  t.match(help, /down \[options\]/)
  t.equal(await outputOf(t, '--state-dir', 'demo', '--help'), help)
  const groupHelp = await outputOf(t, 'amphora', '--help')
  t.match(groupHelp, 'show <id>')
  t.equal(await outputOf(t, '--state-dir', 'list', 'amphora', '--help'), groupHelp)
  t.equal(await outputOf(t, 'help', 'amphora'), groupHelp)
  t.equal(await outputOf(t, 'amphora', 'help'), groupHelp)
  t.match(await outputOf(t, 'help', 'down'), '--all')
})

t.test('the version is printed without loading a command', async t => {
  const loaded = commands.flatMap(entry => ('load' in entry ? [t.capture(entry, 'load', entry.load)] : []))
  const count = () => loaded.flatMap(calls => calls()).length
  t.match(await outputOf(t, '--version'), /^\d+\.\d+\.\d+\n$/)
  t.equal(count(), 0)
  await outputOf(t, '--help')
  t.equal(count(), loaded.length, 'help loads every command')
})
