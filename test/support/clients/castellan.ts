import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Test } from 'tap'
import { readCloud } from '../../../controller/cli/api-client.js'
import type { Krater } from '../worlds/krater.js'
import { type Result, runSuite, type Suite, suiteDirectory } from './stestr.js'

/** Debian's oslo.context does not know the argument that their setUp gives. Our own test of Castellan has such contexts. */
const REQUEST_CONTEXTS = {
  'test_barbican_key_manager.BarbicanKeyManagerOSLOContextTestCase': "unexpected keyword argument 'tenant'",
}

/**
 * Runs Castellan's functional tests as the user `demo`.
 * @param endpoint instead of the one in the catalogue
 */
export async function runFunctionalTests(
  t: Test,
  krater: Krater,
  suite: Partial<Suite>,
  endpoint?: string,
): Promise<Result[]> {
  const directory = suiteDirectory(t)
  const { auth } = readCloud(krater.directory, 'krater')
  const { auth_url, username, password, project_name } = auth
  mkdirSync(join(directory, 'etc/castellan'), { recursive: true })
  const values = Object.entries({ auth_url, username, password, project_name }).map(
    ([key, value]) => `${key} = ${value}`,
  )
  writeFileSync(join(directory, 'etc/castellan/castellan-functional.conf'), ['[identity]', ...values, ''].join('\n'))
  const all = {
    tests: 'castellan/tests/functional',
    excluded: { test_vault_key_manager: 'it needs Vault' },
    skipped: REQUEST_CONTEXTS,
    ...{ passing: 94, ...suite },
  }
  const options = {
    OS_BARBICAN__AUTH_ENDPOINT: auth_url,
    ...(endpoint !== undefined && { OS_BARBICAN__BARBICAN_ENDPOINT: endpoint }),
  }
  return runSuite(t, directory, all, options)
}
