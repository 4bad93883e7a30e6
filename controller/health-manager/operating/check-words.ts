import type { CheckStatus, FailedCheck } from '../../../amphora-agent/protocol/checks.js'

/** HAProxy's own words for its results (`check_desc`). */
const DESCRIPTIONS: Readonly<Record<CheckStatus, string>> = {
  SOCKERR: 'Socket error',
  L4TOUT: 'Layer4 timeout',
  L4CON: 'Layer4 connection problem',
  L6TOUT: 'Layer6 timeout',
  L6RSP: 'Layer6 invalid response',
  L7TOUT: 'Layer7 timeout',
  L7RSP: 'Layer7 invalid response',
  L7STS: 'Layer7 wrong status',
  PROCERR: 'External check error',
  PROCTOUT: 'External check timeout',
}

/** Why a member is down: `Layer7 wrong status: HTTP 503`. An older agent does not say. */
export function checkText(check: FailedCheck | undefined): string {
  if (check === undefined) return 'The health check fails'
  const { status, code, words } = check
  const detail = [code === 0 ? '' : `HTTP ${code}`, words].filter(part => part !== '').join(', ')
  return `${DESCRIPTIONS[status]}${detail === '' ? '' : `: ${detail}`}`
}
