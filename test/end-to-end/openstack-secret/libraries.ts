import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { clientPython } from '../../support/clients/openstack-session.js'

const script = fileURLToPath(new URL('../../support/clients/key-manager-libraries.py', import.meta.url))

export type Finding = { name: string; got: unknown; expected: unknown }

/** Runs the libraries in their own project. @returns the findings, and other output if the script fails */
export const useLibraries = (environment: NodeJS.ProcessEnv): Promise<{ findings: Finding[]; failure: string }> =>
  new Promise(resolve => {
    const env = { ...environment, PYTHONDONTWRITEBYTECODE: '1' }
    execFile(clientPython(), [script], { env, timeout: 240_000, maxBuffer: 2 ** 24 }, (error, stdout, stderr) =>
      resolve({
        findings: stdout
          .split('\n')
          .filter(Boolean)
          .map(line => JSON.parse(line) as Finding),
        failure: error === null ? '' : stderr,
      }),
    )
  })
