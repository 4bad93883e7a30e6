import type { Fault } from './fault.js'

type Known = { reason: string; remedy: string }

const AS_ROOT = 'Run the command as root (with sudo), or name a directory of your own with KRATER_STATE_DIR'
const NO_SPACE = {
  reason: 'the disk is full',
  remedy: 'Free some space (df -h shows where), then run the command again',
}
const WRONG_PATH = 'Check the path'

/** Faults of files and programs that do not come from a bug. */
const KNOWN: Readonly<Record<string, Known>> = {
  ENOSPC: NO_SPACE,
  EDQUOT: { ...NO_SPACE, reason: 'the disk quota is used up' },
  EROFS: {
    reason: 'the file system is read-only',
    remedy: 'Make it writable (mount -o remount,rw; findmnt -T PATH shows which), or name another directory',
  },
  EACCES: { reason: 'permission denied', remedy: AS_ROOT },
  EPERM: { reason: 'the operation is not permitted', remedy: AS_ROOT },
  ENOENT: { reason: 'it does not exist', remedy: `${WRONG_PATH}; \`krater doctor\` checks the state directory` },
  ENOTDIR: { reason: 'a part of the path is not a directory', remedy: WRONG_PATH },
  EISDIR: { reason: 'it is a directory', remedy: 'Name a file' },
  ENAMETOOLONG: { reason: 'the path is too long', remedy: 'Name a shorter one' },
  ELOOP: { reason: 'its symbolic links form a loop', remedy: WRONG_PATH },
  EBUSY: {
    reason: 'it is in use',
    remedy: 'If it is a mount point, unmount it (umount PATH), then run the command again',
  },
  EMFILE: {
    reason: 'too many files are open',
    remedy: 'Raise the limit (ulimit -n 65536), then run the command again',
  },
  ENFILE: { reason: 'too many files are open on this machine', remedy: 'Raise fs.file-max with sysctl' },
  EIO: { reason: 'the disk is faulty', remedy: 'Look at the kernel log (dmesg)' },
}

const ACTIONS: Readonly<Record<string, string>> = {
  open: 'open',
  read: 'read',
  scandir: 'read',
  stat: 'read',
  lstat: 'read',
  access: 'use',
  write: 'write to',
  mkdir: 'create',
  mkdtemp: 'create a directory at',
  rm: 'remove',
  rmdir: 'remove',
  unlink: 'remove',
  rename: 'replace',
  link: 'create',
  chmod: 'change the mode of',
}

/** Why a file operation or a program failed; null for errors that nobody expects. */
export function systemFault(error: unknown): Fault | null {
  if (!(error instanceof Error)) return null
  const { code, path, syscall, cmd, stderr } = error as NodeJS.ErrnoException & { cmd?: unknown; stderr?: unknown }
  if (code === 'ENOENT' && syscall?.startsWith('spawn')) return notInstalled(path ?? '')
  if (syscall === 'listen' || syscall === 'bind') return cannotListen(error)
  if (typeof cmd === 'string') return programFault(cmd, String(stderr ?? ''))
  const known = KNOWN[(code ?? '').replace(/^ERR_FS_/, '')]
  if (known === undefined) return null
  const action = ACTIONS[syscall ?? ''] ?? 'use'
  const object = path === undefined ? '' : ` ${path}`
  return {
    what: `Cannot ${object === '' ? 'write' : action}${object}: ${known.reason} (${code})`,
    remedy: known.remedy.replace('PATH', path ?? '.'),
  }
}

/** The reason in an errno code, such as `the disk is full`; the code itself if it is unknown. */
export const reasonOf = (code: string | undefined): string => KNOWN[code ?? '']?.reason ?? code ?? 'unknown'

/** The remedy for an errno code. */
export const remedyFor = (code: string | undefined, path: string): string =>
  (KNOWN[code ?? '']?.remedy ?? WRONG_PATH).replace('PATH', path)

function cannotListen(error: NodeJS.ErrnoException & { address?: string; port?: number }): Fault {
  const { code, address = 'localhost', port = 0 } = error
  const reason = code === 'EADDRINUSE' ? 'another program has it' : reasonOf(code)
  return {
    what: `Cannot listen on ${address} port ${port}: ${reason} (${code})`,
    remedy: `Free it (ss -lptu 'sport = :${port}' shows who has it), or set another host or port in krater.yaml`,
  }
}

const notInstalled = (program: string): Fault => ({
  what: `${program} is not installed, or not in PATH`,
  remedy: '`krater doctor` names the missing Debian packages',
})

/** A program such as `ip` or `nft` that refused its work. */
function programFault(commandLine: string, stderr: string): Fault {
  const [first = ''] = stderr.trim().split('\n')
  return {
    what: `\`${commandLine}\` failed${first === '' ? '' : `: ${first.replace(/\.$/, '')}`}`,
    remedy: '`krater doctor` checks what this machine lacks',
  }
}
