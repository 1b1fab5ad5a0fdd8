// SPDX-License-Identifier: Apache-2.0

//go:build unix

package sqlite

import (
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"modernc.org/libc"
	lib "modernc.org/sqlite/lib"
)

// diskVFS is the name of a VFS of SQLite that works like the default one but first
// calls the methods of a disk. Tests that use it do not run in parallel.
const diskVFS = "roux-test-disk"

// A disk decides what happens to reads, writes and syncs. Its functions are called on
// the goroutine that uses the connection, and may use another connection. They return a
// result code of SQLite; anything but SQLITE_OK keeps the call from reaching the file.
// The tape, if there is one, records the calls that did reach it.
type disk struct {
	read  func(wal bool, off int64) int32
	write func(wal bool, data []byte, off int64) int32
	sync  func(wal bool) int32
	tape  *tape
}

// An openFile is what a disk knows of a file that SQLite has open.
type openFile struct {
	name string
	wal  bool
	id   int // on the tape
}

var vfs struct {
	once sync.Once
	disk atomic.Pointer[disk]

	mu      sync.Mutex
	files   map[uintptr]openFile
	tables  map[uintptr]uintptr // methods of the default file system -> ours
	methods map[uintptr]uintptr // and back
	open    uintptr
	remove  uintptr
	openDir uintptr
	synced  map[*libc.TLS]bool // a directory is being synced in this thread
}

// useDisk puts d under all stores opened with the returned vfs.
func useDisk(d *disk) string {
	vfs.once.Do(registerVFS)
	vfs.disk.Store(d)
	return diskVFS
}

func funcPointer(f any) uintptr {
	type iface [2]uintptr
	return (*iface)(unsafe.Pointer(&f))[1]
}

// at returns a pointer to the C value at an address. The memory is not Go's, so the
// garbage collector ignores it.
func at[T any](address uintptr) *T { return *(**T)(unsafe.Pointer(&address)) }

// call turns a C function pointer into a function.
func call[F any](pointer uintptr) F { return *(*F)(unsafe.Pointer(&pointer)) }

func registerVFS() {
	vfs.files, vfs.tables, vfs.methods = map[uintptr]openFile{}, map[uintptr]uintptr{}, map[uintptr]uintptr{}
	vfs.synced = map[*libc.TLS]bool{}
	tls := libc.NewTLS() // lives as long as the file system does
	base := lib.Xsqlite3_vfs_find(tls, 0)
	size := unsafe.Sizeof(lib.Tsqlite3_vfs{})
	ours := libc.Xmalloc(tls, libc.Tsize_t(size))
	v := at[lib.Tsqlite3_vfs](ours)
	*v = *at[lib.Tsqlite3_vfs](base)
	vfs.open, vfs.remove = v.FxOpen, v.FxDelete
	v.FzName = cString(diskVFS)
	v.FxOpen, v.FxDelete = funcPointer(vfsOpen), funcPointer(vfsDelete)
	// The default VFS syncs a directory without a call that could be intercepted, but
	// it opens the directory first, and that call can be intercepted.
	openDir := cString("openDirectory")
	vfs.openDir = call[func(*libc.TLS, uintptr, uintptr) uintptr](v.FxGetSystemCall)(tls, base, openDir)
	if rc := call[func(*libc.TLS, uintptr, uintptr, uintptr) int32](v.FxSetSystemCall)(tls, base, openDir, funcPointer(vfsOpenDirectory)); rc != lib.SQLITE_OK || vfs.openDir == 0 {
		panic(rc)
	}
	if rc := lib.Xsqlite3_vfs_register(tls, ours, 0); rc != lib.SQLITE_OK {
		panic(rc)
	}
}

func cString(s string) uintptr {
	p, err := libc.CString(s)
	if err != nil {
		panic(err)
	}
	return p
}

const watchedFiles = lib.SQLITE_OPEN_MAIN_DB | lib.SQLITE_OPEN_WAL | lib.SQLITE_OPEN_MAIN_JOURNAL

func vfsOpen(tls *libc.TLS, v, name, file uintptr, flags int32, out uintptr) int32 {
	f := openFile{wal: flags&lib.SQLITE_OPEN_WAL != 0}
	existed := true
	if name != 0 {
		f.name = libc.GoString(name)
		_, err := os.Lstat(f.name)
		existed = err == nil
	}
	open := call[func(*libc.TLS, uintptr, uintptr, uintptr, int32, uintptr) int32](vfs.open)
	rc := open(tls, v, name, file, flags, out)
	opened := at[lib.Tsqlite3_file](file)
	if rc != lib.SQLITE_OK || opened.FpMethods == 0 || flags&watchedFiles == 0 {
		return rc
	}
	vfs.mu.Lock()
	defer vfs.mu.Unlock()
	ours, ok := vfs.tables[opened.FpMethods]
	if !ok {
		ours = libc.Xmalloc(tls, libc.Tsize_t(unsafe.Sizeof(lib.Tsqlite3_io_methods{})))
		m := at[lib.Tsqlite3_io_methods](ours)
		*m = *at[lib.Tsqlite3_io_methods](opened.FpMethods)
		m.FxRead = funcPointer(vfsRead)
		m.FxWrite, m.FxSync, m.FxTruncate = funcPointer(vfsWrite), funcPointer(vfsSync), funcPointer(vfsTruncate)
		vfs.tables[opened.FpMethods], vfs.methods[ours] = ours, opened.FpMethods
	}
	opened.FpMethods = ours
	if d := vfs.disk.Load(); d != nil && d.tape != nil {
		f.id = d.tape.opened(f.name, existed)
	}
	vfs.files[file] = f
	return rc
}

func vfsDelete(tls *libc.TLS, v, name uintptr, syncDir int32) int32 {
	rc := call[func(*libc.TLS, uintptr, uintptr, int32) int32](vfs.remove)(tls, v, name, syncDir)
	if d := vfs.disk.Load(); d != nil && d.tape != nil && rc == lib.SQLITE_OK {
		d.tape.removed(libc.GoString(name))
		if dirSynced(tls) {
			d.tape.directory(libc.GoString(name), d.tape.now())
		}
	}
	return rc
}

func vfsOpenDirectory(tls *libc.TLS, name, fd uintptr) int32 {
	vfs.mu.Lock()
	vfs.synced[tls] = true
	vfs.mu.Unlock()
	return call[func(*libc.TLS, uintptr, uintptr) int32](vfs.openDir)(tls, name, fd)
}

// dirSynced reports whether this thread has synced a directory since the last call.
func dirSynced(tls *libc.TLS) bool {
	vfs.mu.Lock()
	defer vfs.mu.Unlock()
	is := vfs.synced[tls]
	delete(vfs.synced, tls)
	return is
}

// original returns the default methods of a file and what the file is.
func original(file uintptr) (*lib.Tsqlite3_io_methods, openFile) {
	vfs.mu.Lock()
	defer vfs.mu.Unlock()
	m := vfs.methods[at[lib.Tsqlite3_file](file).FpMethods]
	return at[lib.Tsqlite3_io_methods](m), vfs.files[file]
}

func vfsRead(tls *libc.TLS, file, buf uintptr, n int32, off lib.Tsqlite3_int64) int32 {
	m, f := original(file)
	if d := vfs.disk.Load(); d != nil && d.read != nil {
		if rc := d.read(f.wal, off); rc != lib.SQLITE_OK {
			return rc
		}
	}
	return call[func(*libc.TLS, uintptr, uintptr, int32, lib.Tsqlite3_int64) int32](m.FxRead)(tls, file, buf, n, off)
}

func vfsWrite(tls *libc.TLS, file, buf uintptr, n int32, off lib.Tsqlite3_int64) int32 {
	m, f := original(file)
	d := vfs.disk.Load()
	data := unsafe.Slice(at[byte](buf), n)
	if d != nil && d.write != nil {
		if rc := d.write(f.wal, data, off); rc != lib.SQLITE_OK {
			return rc
		}
	}
	if d != nil && d.tape != nil {
		d.tape.wrote(f.id, data, off)
	}
	return call[func(*libc.TLS, uintptr, uintptr, int32, lib.Tsqlite3_int64) int32](m.FxWrite)(tls, file, buf, n, off)
}

func vfsTruncate(tls *libc.TLS, file uintptr, size lib.Tsqlite3_int64) int32 {
	m, f := original(file)
	if d := vfs.disk.Load(); d != nil && d.tape != nil {
		d.tape.truncated(f.id, size)
	}
	return call[func(*libc.TLS, uintptr, lib.Tsqlite3_int64) int32](m.FxTruncate)(tls, file, size)
}

func vfsSync(tls *libc.TLS, file uintptr, flags int32) int32 {
	m, f := original(file)
	d := vfs.disk.Load()
	if d != nil && d.sync != nil {
		if rc := d.sync(f.wal); rc != lib.SQLITE_OK {
			return rc
		}
	}
	if d == nil || d.tape == nil {
		return call[func(*libc.TLS, uintptr, int32) int32](m.FxSync)(tls, file, flags)
	}
	begun := d.tape.now()
	rc := call[func(*libc.TLS, uintptr, int32) int32](m.FxSync)(tls, file, flags)
	if rc == lib.SQLITE_OK {
		d.tape.synced(f.id, begun)
		if dirSynced(tls) {
			d.tape.directory(f.name, begun)
		}
	}
	return rc
}
