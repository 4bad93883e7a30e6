import { sentenceOf } from './cli/faults/fault.js'
import { systemFault } from './cli/faults/system-fault.js'
import { runCommandLine } from './cli/program.js'

/** Runs the command line of this process and sets its exit status. */
export async function main(): Promise<void> {
  // sudo and service managers may omit the directories of ip, nft and sshd.
  process.env.PATH = `${process.env.PATH ?? '/usr/bin:/bin'}:/usr/sbin:/sbin`

  // `krater amphora list | head` closes the pipe early.
  process.stdout.on('error', error => {
    if ((error as NodeJS.ErrnoException).code === 'EPIPE') process.exit(0)
    const fault = systemFault(error)
    process.stderr.write(`${fault === null ? `Cannot write the output: ${error.message}.` : sentenceOf(fault)}\n`)
    process.exit(1)
  })

  process.exitCode = await runCommandLine(process.argv.slice(2))
}
